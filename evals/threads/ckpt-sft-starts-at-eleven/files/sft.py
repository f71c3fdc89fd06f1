def strip_prefix(sd):
    if next(iter(sd)).startswith("module."):
        return {k[len("module."):]: v for k, v in sd.items()}
    return sd


def load(model, path):
    sd = strip_prefix(torch.load(path, map_location="cpu")["model"])
    missing, unexpected = model.load_state_dict(sd, strict=False)
    print(f"loaded state dict: {len(missing)} missing, {len(unexpected)} unexpected")
