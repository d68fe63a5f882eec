import pytest
import torch

from trading_torchrl.machine import EXACT, set_precision


@pytest.fixture(autouse=True)
def _as_it_was():
    before = torch.get_float32_matmul_precision()
    yield
    torch.set_float32_matmul_precision(before)


def test_auto_is_the_faster_one_where_it_is_exact_and_says_which():
    _, error = set_precision("medium")
    chosen, left = set_precision("auto")
    assert chosen == torch.get_float32_matmul_precision()
    assert chosen == ("medium" if error < EXACT else "highest")
    assert left < EXACT


def test_auto_goes_back_where_products_round(monkeypatch):
    errors = iter([2e-3, 5e-7])
    monkeypatch.setattr("trading_torchrl.machine._rounding", lambda: next(errors))
    assert set_precision("auto") == ("highest", 5e-7)
    assert torch.get_float32_matmul_precision() == "highest"


def test_what_is_no_precision_is_refused():
    with pytest.raises(ValueError, match="auto, highest, high, medium, got 'low'"):
        set_precision("low")
