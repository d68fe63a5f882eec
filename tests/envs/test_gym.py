"""Gymnasium's view: its own checkers, one account beside N, and the TensorDict environment."""

import subprocess
import sys

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env
from gymnasium.utils.passive_env_checker import data_shares_objects
from gymnasium.vector import AutoresetMode, VectorEnv
from torchrl.envs import Compose, RewardSum, StepCounter, TransformedEnv

from trading_torchrl.data import synthetic_market
from trading_torchrl.envs import TradingEnv
from trading_torchrl.envs.gym import GymView, VectorGymView, small_market
from trading_torchrl.envs.gym_spaces import LARGEST
from trading_torchrl.envs.reference import PlantedLeak
from trading_torchrl.registration import PROBLEMS

TRADING = "trading_torchrl/Trading-v0"
IDS = [f"trading_torchrl/{name}" for name, _ in PROBLEMS]
MODES = {
    "continuous": {"actions": "continuous", "emit": "all"},
    "target": {"actions": "target", "short": True, "max_position": 1.0, "leverage": 2.0},
    "target_assets": {"actions": "target", "assets": 3, "emit": ("units", "equity", "index")},
    "discrete": {"actions": "discrete"},
    "discrete_assets": {"actions": "discrete", "assets": 2, "emit": ("fees", "share")},
}
SPACES = {
    "continuous": gymnasium.spaces.Box(-1, 1, (1,), np.float32),
    "target": gymnasium.spaces.Box(-1, 1, (1,), np.float32),
    "target_assets": gymnasium.spaces.Box(-1, 1, (3,), np.float32),
    "discrete": gymnasium.spaces.Discrete(7),
    "discrete_assets": gymnasium.spaces.MultiDiscrete([7, 7]),
}

pytestmark = pytest.mark.filterwarnings("error")


@pytest.fixture(scope="module")
def market():
    return synthetic_market(symbols=4, bars=700, seed=3, volatility=2.0)


def settings_of(market, mode, **more):
    return {"market": market, "compiled": False, "episode_bars": 20, **MODES[mode], **more}


def single(market, mode, **more):
    return gymnasium.make(TRADING, **settings_of(market, mode, **more))


def vector(market, mode, num_envs=4, **more):
    return gymnasium.make_vec(TRADING, num_envs, **settings_of(market, mode, **more))


def actions_of(view, steps, seed=0):
    """Actions for all accounts: ``[steps, N, ...]``."""
    view.action_space.seed(seed)
    return np.stack([view.action_space.sample() for _ in range(steps)])


def copy_of(data):
    if isinstance(data, dict):
        return {key: copy_of(value) for key, value in data.items()}
    if isinstance(data, tuple):
        return tuple(copy_of(value) for value in data)
    return data.copy() if isinstance(data, np.ndarray) else data


def same(one, two):
    """Whether both are the same bit for bit, in types as in values."""
    assert type(one) is type(two)
    if isinstance(one, dict):
        return one.keys() == two.keys() and all(same(one[key], two[key]) for key in one)
    if isinstance(one, tuple):
        return all(same(a, b) for a, b in zip(one, two, strict=True))
    if isinstance(one, np.ndarray) and one.dtype == object:
        return len(one) == len(two) and all(same(a, b) for a, b in zip(one, two, strict=True))
    if isinstance(one, np.ndarray):
        return one.dtype == two.dtype and np.array_equal(one, two, equal_nan=one.dtype.kind == "f")
    return one == two


def row(info, account):
    """The infos of one account, as its own view would give them."""
    shown = {name: value for name, value in info.items() if not name.startswith("_")}
    assert all(info[f"_{name}"][account] for name in shown)
    return {name: value[account] for name, value in shown.items()}


@pytest.mark.parametrize("mode", MODES)
def test_gymnasiums_checker_finds_nothing(market, mode):
    check_env(single(market, mode).unwrapped)


@pytest.mark.parametrize("mode", MODES)
def test_spaces(market, mode):
    one, many = single(market, mode), vector(market, mode)
    assert one.action_space == many.single_action_space == SPACES[mode]
    shape = (len(one.unwrapped.core.observation_names),)
    assert one.observation_space == gymnasium.spaces.Box(-LARGEST, LARGEST, shape, np.float32)
    assert many.single_observation_space == one.observation_space
    assert many.observation_space.shape == (4, *shape)
    assert isinstance(one.unwrapped.core, TradingEnv)


@pytest.mark.parametrize("mode", MODES)
def test_wrappers_of_make_find_nothing(market, mode):
    env = single(market, mode)
    env.action_space.seed(0)
    for _ in range(3):
        observation, _ = env.reset()
        ended = False
        while not ended:
            assert observation in env.observation_space
            observation, reward, terminated, truncated, _ = env.step(env.action_space.sample())
            assert type(reward) is float
            assert type(terminated) is type(truncated) is bool
            ended = terminated or truncated
    env.close()
    env.close()


def check_vector(view: VectorEnv, steps: int) -> int:
    """Gymnasium's contract of a vector; says how many episodes ended."""
    n, ends, kept = view.num_envs, 0, []
    assert view.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    assert view.action_space.shape[0] == view.observation_space.shape[0] == n
    observation, info = view.reset(seed=5)
    assert view.np_random_seed == 5
    assert observation in view.observation_space
    for action in actions_of(view, steps):
        result = view.step(action)
        observation, reward, terminated, truncated, info = result
        assert observation in view.observation_space
        assert reward.shape == terminated.shape == truncated.shape == (n,)
        assert reward.dtype.kind == "f"
        assert terminated.dtype == truncated.dtype == np.bool_
        for name in [name for name in info if not name.startswith("_")]:
            assert isinstance(info[name], dict) or len(info[name]) == n
            assert info[f"_{name}"].shape == (n,)
            assert info[f"_{name}"].dtype == np.bool_
        ended = terminated | truncated
        assert ("final_obs" in info) == ("final_info" in info) == ended.any()
        if ended.any():
            assert (info["_final_obs"] == ended).all()
            assert (info["_final_info"] == ended).all()
            for account, final in enumerate(info["final_obs"]):
                assert (final in view.single_observation_space) if ended[account] else final is None
        ends += int(ended.sum())
        kept.append((result, copy_of(result)))
    for (result, then), (following, _) in zip(kept, [*kept[1:], kept[0]], strict=True):
        assert same(result, then)
        assert not data_shares_objects(result[0], following[0])
        assert not data_shares_objects(result[4], following[4])

    def played():
        first = view.reset(seed=8)
        return [copy_of(first), *[copy_of(view.step(a)) for a in actions_of(view, 5)]]

    assert all(same(a, b) for a, b in zip(played(), played(), strict=True))
    assert view.reset()[0].shape == observation.shape
    view.close()
    view.close()
    return ends


@pytest.mark.parametrize("mode", MODES)
def test_vector_keeps_the_contract(market, mode):
    assert check_vector(vector(market, mode), 50) >= 8


@pytest.mark.parametrize("mode", MODES)
def test_vector_is_the_tensordict_environment_bit_for_bit(market, mode):
    view = vector(market, mode)
    core = TradingEnv(num_envs=4, **settings_of(market, mode))
    core.set_seed(11)
    observation, info = view.reset(seed=11)
    seen = core.reset()
    actions = actions_of(view, 50)
    actions.setflags(write=False)
    for action in actions:
        observation, reward, terminated, truncated, info = view.step(action)
        seen["action"] = torch.tensor(action)
        before, seen = core.step_and_maybe_reset(seen)
        after = before["next"]
        assert (torch.from_numpy(observation) == seen["observation"]).all()
        for got, key in ((reward, "reward"), (terminated, "terminated"), (truncated, "truncated")):
            assert (torch.from_numpy(got) == after[key][:, 0]).all()
        ended = np.flatnonzero(terminated | truncated)
        for keys, got, where in (
            (seen, info, slice(None)),
            (after, info.get("final_info", {}), ended),
        ):
            for name in [name for name in got if not name.startswith(("_", "final_"))]:
                expected = keys[tuple(name.split("/"))][where].numpy()
                assert (got[name][where].reshape(expected.shape) == expected).all()
        for account in ended:
            assert (info["final_obs"][account] == after["observation"][account].numpy()).all()


@pytest.mark.parametrize("mode", MODES)
def test_single_is_an_account_of_the_vector(market, mode):
    many = vector(market, mode)
    actions = actions_of(many, 50)
    for account in (0, 2):
        one = single(market, mode, first_account=account)
        assert same((one.reset(seed=6)[0],), (many.reset(seed=6)[0][account],))
        for action in actions:
            observations, rewards, terminated, truncated, infos = many.step(action)
            observation, reward, *flags, info = one.step(action[account])
            assert reward == rewards[account]
            assert flags == [terminated[account], truncated[account]]
            if any(flags):
                assert same(observation, infos["final_obs"][account])
                assert same(info, row(infos["final_info"], account))
                observation, info = one.reset()
                infos = {k: v for k, v in infos.items() if "final_" not in k}
            assert same(observation, observations[account])
            assert same(info, row(infos, account))


def test_sync_vector_agrees(market):
    """Gymnasium's loop over single accounts gives the same rewards and the same endings."""
    own = vector(market, "discrete", random_start=False, random_symbols=False)
    loop = gymnasium.vector.SyncVectorEnv(
        [lambda k=k: single(market, "discrete", random_start=False, random_symbols=False,
                            first_account=k) for k in range(4)],
        autoreset_mode=AutoresetMode.SAME_STEP,
    )  # fmt: skip
    own.reset(seed=0), loop.reset(seed=0)
    for action in actions_of(own, 45):
        mine, theirs = own.step(action), loop.step(action)
        for a, b in zip(mine[:4], theirs[:4], strict=True):
            assert np.array_equal(a, b)
        assert mine[4].keys() == theirs[4].keys()
        for name, value in theirs[4].items():
            if name == "final_info":
                assert value.keys() == mine[4][name].keys()
                assert all(np.array_equal(value[k], mine[4][name][k]) for k in value)
            elif name != "final_obs":
                assert np.array_equal(value, mine[4][name])
            else:
                assert same(value, mine[4][name])


def test_seed_starts_over_and_none_goes_on(market):
    env = single(market, "target", emit=("index",))

    def place():
        info = env.reset()[1]
        return int(info["market/bar"]), int(info["market/symbol"])

    env.reset(seed=4)
    first = [place() for _ in range(4)]
    env.reset(seed=4)
    assert [place() for _ in range(4)] == first
    assert len(set(first)) > 1
    assert env.unwrapped.np_random_seed == 4


def test_infos_have_flat_names(market):
    env = single(market, "discrete", emit=("equity", "trades"))
    _, info = env.reset()
    assert set(info) == {"action_mask", "account/equity", "account/trades"}
    assert info["account/equity"] == 10_000.0
    assert isinstance(info["account/equity"], np.float64)
    assert isinstance(info["account/trades"], np.int64)
    action = env.action_space.sample(info["action_mask"])
    assert info["action_mask"][action]


def test_an_ended_episode_must_be_reset(market):
    env = GymView(TradingEnv(market, 1, episode_bars=3, compiled=False))
    with pytest.raises(ResetNeeded, match="call reset"):
        env.step(np.zeros(1, np.float32))
    env.reset()
    while not env.step(np.zeros(1, np.float32))[3]:
        pass
    with pytest.raises(ResetNeeded, match="call reset"):
        env.step(np.zeros(1, np.float32))
    with pytest.raises(ResetNeeded, match="call reset"):
        VectorGymView(TradingEnv(market, 2, compiled=False)).step(np.zeros((2, 1)))


@pytest.mark.parametrize("name", [TRADING, *IDS])
def test_what_callers_write_changes_nothing(market, name):
    settings = settings_of(market, "continuous") if name == TRADING else {}
    quiet, noisy = (gymnasium.make_vec(name, 4, **settings) for _ in range(2))
    quiet.reset(seed=1)
    noisy.reset(seed=1)[0][:] = 7
    for action in actions_of(quiet, 30):
        given = action.copy()
        expected, got = quiet.step(action), noisy.step(given)
        assert same(expected, got)
        given[:] = 0
        assert same(expected, got)
        for value in (*got[:4], *got[4].values()):
            if isinstance(value, np.ndarray) and value.dtype != object:
                value[:] = 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"reward": "objectives"}, "gives 5 rewards a step.*emit=.*objectives"),
        ({"window": 16}, "window=16.*MarketWindow"),
        ({"actions": "hybrid"}, "takes the actions.*action_name.*continuous, target or discrete"),
    ],
)
def test_what_gymnasium_cannot_show_is_refused(market, settings, message):
    for build in (gymnasium.make, gymnasium.make_vec):
        with pytest.raises(ValueError, match=message):
            build(TRADING, market=market, compiled=False, **settings)


def test_wrong_use_is_refused_with_what_is_allowed(market):
    env, many = single(market, "discrete"), vector(market, "discrete")
    env.reset(), many.reset()
    with pytest.raises(ValueError, match=r"reset has no options here, got \['start'\]"):
        env.reset(options={"start": 3})
    with pytest.raises(ValueError, match=r"shape \(2,\).*must have shape \(4,\) and type int64"):
        many.step(np.zeros(2, np.int64))
    with pytest.raises(ValueError, match=r"type float64.*must have shape \(\) and type int64"):
        env.step(0.5)
    with pytest.raises(ValueError, match=r"got the action \[9\].*0 to 6"):
        env.step(9)
    with pytest.raises(ValueError, match=r"has 2 accounts.*VectorGymView"):
        GymView(TradingEnv(market, 2, compiled=False))
    with pytest.raises(ValueError, match=r"render_mode='rgb_array' is not known here.*make"):
        vector(market, "discrete", render_mode="rgb_array")
    assert env.step(np.int64(0))[1] == 0


def test_gymnasiums_wrappers_of_vectors_fit(market):
    many = gymnasium.wrappers.vector.RecordEpisodeStatistics(vector(market, "target"))
    many = gymnasium.wrappers.vector.ClipReward(many, -1e-3, 1e-3)
    many.reset(seed=1)
    for action in actions_of(many, 20):
        _, reward, _, truncated, info = many.step(action)
        assert (abs(reward) <= 1e-3).all()
    assert truncated.all()
    assert (info["episode"]["l"] == 20).all()


def test_transformed_environments_can_be_viewed(market):
    def build(num_envs):
        core = TradingEnv(market, num_envs, episode_bars=10, compiled=False)
        return TransformedEnv(core, RewardSum())

    one, many = GymView(build(1)), VectorGymView(build(2))
    one.reset(seed=2), many.reset(seed=2)
    earned = 0.0
    for action in actions_of(many, 10):
        _, reward, _, truncated, info = one.step(action[0])
        *_, infos = many.step(action)
        earned += reward
        assert info["episode_reward"] == pytest.approx(earned, abs=1e-6)
    assert truncated
    assert infos["final_info"]["episode_reward"][0] == info["episode_reward"]
    assert infos["episode_reward"][0] == 0


def test_picture_of_an_episode(market):
    env = single(market, "target_assets", render_mode="rgb_array")
    with pytest.raises(ResetNeeded):
        env.unwrapped.render()
    env.reset(seed=0)
    pictures = [env.render()]
    for _ in range(20):
        env.step(env.action_space.sample())
    pictures.append(env.render())
    for picture in pictures:
        assert picture.dtype == np.uint8
        assert picture.shape == (850, 1100, 3)
    assert (pictures[0] != pictures[1]).any()
    assert len(env.unwrapped._steps) == 20
    env.reset()
    assert not env.unwrapped._steps
    quiet = single(market, "target")
    quiet.reset()
    quiet.step(quiet.action_space.sample())
    assert not quiet.unwrapped._steps


def test_episodes_can_be_filmed(market):
    env = single(market, "discrete", render_mode="rgb_array_list", episode_bars=2)
    env.reset()
    env.step(1)
    assert len(env.render()) == 2


def test_a_market_is_at_hand():
    assert gymnasium.make(TRADING, compiled=False).unwrapped.core.market is small_market()
    many = gymnasium.make_vec(TRADING, num_envs=3, compiled=False)
    assert (many.unwrapped.core.market, many.num_envs) == (small_market(), 3)


def test_importing_the_package_is_light():
    code = (
        "import sys, trading_torchrl, gymnasium;"
        f"gymnasium.spec({TRADING!r}); [gymnasium.spec(name) for name in {IDS}];"
        "assert not {'torch', 'tensordict', 'pandas', 'matplotlib'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("name", IDS)
def test_reference_problems_pass_gymnasiums_checker(name):
    env = gymnasium.make(name)
    check_env(env.unwrapped)
    env.reset(seed=0)
    env.step(env.action_space.sample())
    with pytest.raises(ValueError, match="render_mode='rgb_array' is not known here"):
        gymnasium.make(name, render_mode="rgb_array")


@pytest.mark.parametrize("name", IDS)
def test_reference_problems_keep_the_vector_contract(name):
    check_vector(gymnasium.make_vec(name, num_envs=5), 60)


@pytest.mark.parametrize("name", IDS)
def test_reference_problems_single_is_account_0_of_the_vector(name):
    one, many = gymnasium.make(name), gymnasium.make_vec(name, num_envs=3)
    first, seen = one.reset(seed=2)[0], many.reset(seed=2)[0]
    assert same(first, seen[0])
    for action in actions_of(many, 40):
        observations, rewards, *_, infos = many.step(action)
        observation, reward, terminated, truncated, _ = one.step(action[0])
        assert reward == rewards[0]
        if terminated or truncated:
            assert same(observation, infos["final_obs"][0])
            observation, _ = one.reset()
        assert same(observation, observations[0])


@pytest.mark.parametrize(
    ("algorithm", "mode"),
    [("SAC", "target"), ("PPO", "continuous"), ("PPO", "discrete_assets"), ("DQN", "discrete")],
)
def test_stable_baselines3_trains(market, algorithm, mode):
    sb3 = pytest.importorskip("stable_baselines3")
    from stable_baselines3.common.env_checker import check_env as check

    env = single(market, mode)
    check(env)
    few = {"n_steps": 64} if algorithm == "PPO" else {"learning_starts": 64}
    model = getattr(sb3, algorithm)("MlpPolicy", env, seed=0, batch_size=32, device="cpu", **few)
    before = [parameter.detach().clone() for parameter in model.policy.parameters()]
    model.learn(200)
    moved = zip(before, model.policy.parameters(), strict=True)
    assert any((old != new).any() for old, new in moved)
    action, _ = model.predict(env.reset()[0], deterministic=True)
    assert action in env.action_space


def test_what_transforms_remember_is_not_the_callers_to_write_to():
    def steps(spoil):
        core = TransformedEnv(PlantedLeak(3), Compose(RewardSum(), StepCounter()))
        view = VectorGymView(core)
        view.reset(seed=1)
        for _ in range(4):
            *_, info = view.step(np.ones((3, 1), np.float32))
            shown = {name: value.copy() for name, value in info.items()}
            if spoil:
                info["step_count"][:] = 0
                info["episode_reward"][:] = 0
        return shown

    kept, spoilt = steps(False), steps(True)
    assert (kept["step_count"] == 4).all()
    assert all((kept[name] == spoilt[name]).all() for name in kept)


def test_one_name_to_emit_may_be_drawn_too(market):
    view = gymnasium.make(
        "trading_torchrl/Trading-v0", market=market, emit="fees", render_mode="rgb_array",
        compiled=False,
    )  # fmt: skip
    _, info = view.reset(seed=0)
    assert "account/fees" in info
