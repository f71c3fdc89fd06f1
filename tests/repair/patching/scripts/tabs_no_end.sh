#!/bin/bash
	python train.py	--learning_rate 1e-4	\
		--seed 1