ckpt_mgr = CheckpointManager(cfg.checkpoint, model, optimizer)
step, tokens_seen, extra = ckpt_mgr.load(path=cfg.checkpoint.load_path, scheduler=scheduler)
dataloader = build_stateful_dataloader(cfg.data, mixture=MixtureSampler(cfg.data.weights))
for batch in dataloader:
    loss = train_step(model, batch)
    step += 1
    if step % cfg.checkpoint.interval == 0:
        ckpt_mgr.save(step=step, tokens_seen=tokens_seen, scheduler=scheduler)
    if shutdown.requested():
        ckpt_mgr.save(step=step, tokens_seen=tokens_seen, scheduler=scheduler)
        break
