import data


def test_gaps():
    seen, meant = data.encode("a mill")
    assert seen.tolist()[0] == data.INDEX["*"] and meant.tolist() == [0, -1, -1, 2, -1, -1]


def test_ranks_share_nothing(tmp_path):
    for n in range(4):
        (tmp_path / f"chapter{n}.txt").write_text("killed, resumed, and out of memory " * 9)
    one, two = data.Chapters(tmp_path, 0, 2), data.Chapters(tmp_path, 1, 2)
    assert not set(one.files) & set(two.files)
