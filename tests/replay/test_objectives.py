"""Several objectives as one reward: weights, what is new, and the sum, by hand."""

import pytest
import torch
from tensordict import TensorDict

from trading_torchrl.data import synthetic_market
from trading_torchrl.envs import TradingEnv
from trading_torchrl.envs.terms import OBJECTIVES, TERMS
from trading_torchrl.modules import fixed_weights, regime_weights
from trading_torchrl.modules.weights import START
from trading_torchrl.replay import Novelty, VectorReward, WeighedObjectives
from trading_torchrl.state_file import load, save


def batch(rewards, *terms):
    return TensorDict(
        {
            "next": {
                "reward": torch.tensor(rewards)[:, None],
                "objectives": {"terms": torch.tensor(terms).T},
            }
        },
        [len(rewards)],
    )


def test_weights_are_in_the_order_of_the_columns():
    assert tuple(START) == (*OBJECTIVES, "exploration")


def test_weights_sum_to_1_and_keep_their_proportions():
    assert fixed_weights().tolist() == pytest.approx(list(START.values()))
    doubled = fixed_weights({name: 2 * weight for name, weight in START.items()})
    torch.testing.assert_close(doubled, fixed_weights())


def test_in_turbulent_bars_risk_counts_more_and_profit_less():
    weights = regime_weights(torch.tensor([[False, True]]))
    assert weights.shape == (1, 2, 6)
    quiet, turbulent = weights[0]
    torch.testing.assert_close(quiet, fixed_weights())
    whole = 1 + 0.5 * 0.24 - 0.2 * 0.38
    assert turbulent[1].item() == pytest.approx(1.5 * 0.24 / whole)
    assert turbulent[0].item() == pytest.approx(0.8 * 0.38 / whole)
    torch.testing.assert_close(weights.sum(-1), torch.ones(1, 2))


def test_the_reward_is_the_weighed_sum():
    given = batch([9.0, 9.0], [1.0, 2.0], [-4.0, 0.0])
    weighed = WeighedObjectives(torch.tensor([0.75, 0.25]))(given)
    assert weighed["next", "reward"][:, 0].tolist() == [-0.25, 1.5]
    assert weighed["objectives", "parts"].tolist() == [[0.75, -1.0], [1.5, 0.0]]
    assert weighed["objectives", "weights"].tolist() == [[0.75, 0.25]] * 2
    assert (given["next", "reward"] == 9).all()
    assert given.get("objectives", None) is None
    onto = WeighedObjectives(torch.tensor([0.75, 0.25]), adds="reward")(given)
    assert onto["next", "reward"][:, 0].tolist() == [8.75, 10.5]
    each = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    rows = WeighedObjectives(lambda rows: each)(given)
    assert rows["next", "reward"][:, 0].tolist() == [1.0, 0.0]


def test_what_is_added_comes_last_side_by_side():
    given = batch([9.0, 9.0], [1.0, 2.0], [-4.0, 0.0])
    given["next", "objectives", "exploration"] = torch.tensor([[0.5], [0.25]])
    keys = [TERMS, ("objectives", "exploration")]
    weighed = WeighedObjectives(torch.tensor([0.5, 0.25, 0.25]), keys)(given)
    assert weighed["next", "reward"][:, 0].tolist() == [-0.375, 1.0625]
    apart = VectorReward(keys, adds="reward")(given)
    assert apart["next", "reward"].tolist() == [[1.0, -4.0, 0.5, 9.0], [2.0, 0.0, 0.25, 9.0]]


def test_what_was_seen_often_is_not_new():
    novelty = Novelty(4, size=0.6, visits=3, decay=0.5)
    novelty.see(torch.tensor([[1, 2, 2], [-1, 3, 3], [3, -1, -1]]))
    given = TensorDict({"next": {"place": torch.tensor([0, 1, 2, 3, -1])}}, [5])
    worth = novelty(given)["next", "objectives", "exploration"][:, 0]
    assert worth.tolist() == pytest.approx([0.6, 0.3, 0.2, 0.0, 0.0])
    given["next", "intrinsic"] = torch.full((5, 1), 0.25)
    worth = novelty(given)["next", "objectives", "exploration"][:, 0]
    assert worth.tolist() == pytest.approx([0.55, 0.4, 0.35, 0.25, 0.25])


def test_it_goes_on_where_it_stood(tmp_path):
    one, other = Novelty(3), Novelty(3)
    one.see(torch.tensor([0, 0, 2]))
    given = TensorDict({"next": {"place": torch.tensor([0, 1, 2])}}, [3])
    one(given)
    save(tmp_path / "state.pt", one.state_dict())
    other.load_state_dict(load(tmp_path / "state.pt"))
    assert (one(given) == other(given)).all()


def test_terms_of_an_environment_are_weighed_as_its_vector_reward_would_be():
    market = synthetic_market(2, 700)
    made = {"num_envs": 4, "actions": "target", "compiled": False, "seed": 3}
    torch.manual_seed(0)
    rows = TradingEnv(market, emit=("objectives",), **made).rollout(80)
    torch.manual_seed(0)
    vector = TradingEnv(market, reward="objectives", **made).rollout(80)
    weights = fixed_weights({name: START[name] for name in OBJECTIVES})
    weighed = WeighedObjectives(weights)(rows)["next", "reward"][..., 0]
    torch.testing.assert_close(weighed, vector["next", "reward"] @ weights)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: fixed_weights({"profit": -1.0, "risk": 2.0}), "weights must not be negative"),
        (lambda: fixed_weights({"profit": 0.0}), "nor all zero"),
        (
            lambda: WeighedObjectives(torch.ones(2))(batch([0.0], [1.0])),
            "1 objectives need as many",
        ),
        (lambda: Novelty(3, size=-1), "size must not"),
        (lambda: Novelty(3, visits=-1), "visits must not"),
        (lambda: Novelty(3, decay=1.5), "decay must lie"),
    ],
)
def test_what_does_not_fit_is_refused(made, said):
    with pytest.raises(ValueError, match=said):
        made()
