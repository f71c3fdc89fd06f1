def run_training(cfg, trainer, module, datamodule, out_dir):
    trainer.fit(module, datamodule=datamodule, ckpt_path=cfg.resume)
    if trainer.is_global_zero:
        target = out_dir / "encoder_processor_decoder.ckpt"
        trainer.save_checkpoint(target)
        log.info("saved %s", target)
    finalize_checkpoint_alias(trainer, out_dir)
    log.info("run finished, results in %s", out_dir)


def finalize_checkpoint_alias(trainer, out_dir):
    log.info("finalize: waiting for checkpoint alias")
    trainer.strategy.barrier("checkpoint-alias-finalize")
    if trainer.is_global_zero:
        link_best(out_dir)
