"""How a question and its answer are written down for the model."""

TEMPLATES = {
    "qa": ("question : {question} answer :", " {answer} <end>"),
    "chat": ("<user> {question} <assistant>", " {answer} <end>"),
    "bare": ("{question}", " {answer} <end>"),
}


def prompt(name, question):
    return TEMPLATES[name][0].format(question=question)


def reply(name, answer):
    return TEMPLATES[name][1].format(answer=answer)
