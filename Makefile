# Every target is the same word through ./dev, which installs what it needs on the way.
# Options: make test ARGS='-k gate'

.DEFAULT_GOAL := help

TARGETS := check setup demo up test unit lint format types imports wheel docs lock ci clean

.PHONY: help $(TARGETS)

help:
	@./dev help

$(TARGETS):
	@./dev $@ $(ARGS)
