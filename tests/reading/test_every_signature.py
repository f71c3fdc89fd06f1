"""Completeness of the pass: in one log of all examples, every signature finds its own."""

from traindoctor.agent.core.playbook import playbooks
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.reading.scan.logpass import logpass


def test_every_signature_finds_its_own_examples(tmp_path):
    examples = [
        (book.key, number, example)
        for book in playbooks()
        for number, signature in enumerate(book.signatures)
        for example in signature.matches
        if not signature.harmless
    ]
    text = "".join(f"{example}\n" for _, _, example in examples)
    (tmp_path / "train.log").write_text("step 1 loss 2.0\n" + text + "step 2 loss 1.9\n")
    found = {(hit.name, hit.number) for hits in logpass(Workspace([tmp_path])).hits.values() for hit in hits}
    missed = sorted({(key, number) for key, number, _ in examples} - found)
    assert missed == []
