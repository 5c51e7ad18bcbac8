# Every target is the same word through ./dev, which installs what it needs on the way.
# Options: make test ARGS='-k gate'; for some targets also SEEDS=n, SEED=n and MINUTES=m.

.DEFAULT_GOAL := help

TARGETS := check setup demo up test test-real test-stores test-spark images test-deep test-simulator unit sim sim-mutants mutation fuzz differential conformance chaos chaos-producer chaos-consumer soak lint format types imports wheel docs pictures lock chart ci clean

FLAGS = $(if $(SEEDS),--seeds $(SEEDS)) $(if $(SEED),--seed $(SEED)) $(if $(MINUTES),--minutes $(MINUTES))

.PHONY: help $(TARGETS)

help:
	@./dev help

$(TARGETS):
	@./dev $@ $(FLAGS) $(ARGS)
