import click


@click.group()
@click.version_option("1.2.0")
def main():
    """Activities from a wrist accelerometer."""


@main.command()
@click.argument("config", type=click.Path(exists=True))
@click.option("--set", "sets", multiple=True, metavar="SECTION.KEY=VALUE")
def train(config, sets):
    """Train a net."""
    from . import settings, training
    training.fit(settings.load(config, sets))


@main.command()
@click.argument("run", type=click.Path(exists=True))
@click.option("--sessions", "folder", default="data/sessions")
def test(run, folder):
    """Accuracy on each session."""
    from pathlib import Path

    import torch

    from . import sessions
    from .net import GaitNet
    state = torch.load(Path(run) / "net.pt")
    net = GaitNet(state["cfg"]["net"], 1).eval()
    net.load_state_dict(state["net"])
    for path in sorted(Path(folder).glob("*.csv")):
        found = list(sessions.windows(path, state["cfg"]["data"]["window"], state["cfg"]["data"]["hop"]))
        with torch.no_grad():
            right = sum(net(x[None]).argmax().item() == d for x, d in found)
        click.echo(f"{path.stem}: {right / len(found):.3f} of {len(found)}")


@main.command()
@click.argument("run", type=click.Path(exists=True))
@click.argument("session", type=click.Path(exists=True))
def label(run, session):
    """Write what was done when."""
    from pathlib import Path

    import torch

    from . import sessions
    from .net import GaitNet
    state = torch.load(Path(run) / "net.pt")
    net = GaitNet(state["cfg"]["net"], 1).eval()
    net.load_state_dict(state["net"])
    x, _ = sessions.read(session)
    window = state["cfg"]["data"]["window"]
    for at in range(0, len(x) - window + 1, window):
        click.echo(f"{at / 20:7.1f} s {sessions.ACTIVITIES[net(x[None, at:at + window]).argmax()]}")


@main.command()
@click.argument("folder", default="data/sessions")
def check(folder):
    """Look for gaps."""
    from . import sessions
    for line in sessions.check(folder):
        click.echo(line)
