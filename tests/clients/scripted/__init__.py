"""Answers of a scripted provider, in each of the dialects that providers speak."""
