from gaitwatch import sessions, settings


def test_windows_have_one_activity():
    for x, doing in sessions.windows("data/sessions/s01.csv", 40, 20):
        assert x.shape == (40, 3) and 0 <= doing < 5


def test_held_out_sessions():
    cfg = settings.load("config/ward.toml")
    train, val = sessions.loaders(cfg)
    assert len(val.dataset) == sum(1 for n in ("s07", "s08") for _ in sessions.windows(f"data/sessions/{n}.csv", 40, 20))
