def main(args) -> None:
    """main"""
    torch.cuda.set_device(0)
    dist_utils.setup_distributed(args.print_rank, args.print_method, seed=args.seed)
    cfg = YAMLConfig(args.config, **update_dict)
    solver = TASKS[cfg.yaml_cfg["task"]](cfg)
    solver.fit()
