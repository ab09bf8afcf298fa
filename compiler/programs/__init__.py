"""Graphs kept as JSON and safetensors, so that targets can be added without the checkpoint."""
