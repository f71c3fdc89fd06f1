#!/bin/bash
bash container.sh bash entry.sh > container.log 2>&1
