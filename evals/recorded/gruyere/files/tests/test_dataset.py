from larder.dataset import Padded
from larder.scores import same
from larder.templates import prompt, reply


def test_padding_is_left_out_of_the_loss():
    batch = Padded(0, 4)([{"input_ids": [5, 6], "labels": [-100, 6]}])
    assert batch["labels"].tolist() == [[-100, 6, -100, -100]]
    assert batch["attention_mask"].tolist() == [[1, 1, 0, 0]]


def test_templates():
    assert prompt("qa", "why ?") + reply("qa", "so") == "question : why ? answer : so <end>"


def test_same_words():
    assert same("Two eggs .", "two eggs") and not same("", "two eggs")
