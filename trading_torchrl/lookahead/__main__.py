"""``python -m trading_torchrl.lookahead``."""

from trading_torchrl.lookahead.command import main

raise SystemExit(main())
