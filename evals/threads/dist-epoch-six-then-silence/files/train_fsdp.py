def validation(model, rank, loader):
    model.eval()
    fsdp_loss = torch.zeros(2).to(rank)
    with torch.no_grad():
        for batch in loader:
            out = model(**{k: v.to(rank) for k, v in batch.items()})
            fsdp_loss[0] += out["loss"].item()
            fsdp_loss[1] += len(batch)
    dist.reduce(fsdp_loss, 0, op=dist.ReduceOp.SUM)
    return fsdp_loss[0] / fsdp_loss[1]


for epoch in range(1, cfg.num_epochs + 1):
    train(model, rank, train_loader, optimizer, epoch)
    curr_val_loss = validation(model, rank, val_loader)
    if curr_val_loss < best_val_loss:
        best_val_loss = curr_val_loss
        with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, save_policy):
            cpu_state = model.state_dict()
        print(f"--> saving process: rank {rank} ...")
        if rank == 0:
            torch.save(cpu_state, cfg.save_name)
