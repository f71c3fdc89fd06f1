"""Data only: causes, playbooks, settings map, Xid catalogue, compatibility facts. Imports nothing."""
