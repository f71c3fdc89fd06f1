from fastapi import FastAPI
import torch
from ray import serve
import tensorflow
