# incload: build, install and try it.
#
#   make, make install     build and install with PGXS (PG_CONFIG=… picks the server)
#   make installcheck      pg_regress and TAP against a server that you started
#   make test              set up what is missing, build, install, run every test
#   make regress | isolation | tap | model      one part of it; T='name…' picks tests by name
#   make torture           bench/torture: 20 seeds of two minutes, killing servers meanwhile
#   make demo              two throw-away servers, one job, while pgbench writes
#   make gameday           break a throw-away set-up on purpose, and see what to do about it
#   make bench             speed, against psql's COPY and others; SIZE=small for a quick look
#   make scheduler         bench/scheduler: what 10,000 jobs cost, and whether a scheduler grows
#   make matrix            make test in clean roots of several Debian suites
#   make lint              check the shell scripts

EXTENSION = incload
MODULE_big = incload
OBJS = $(patsubst %.c,%.o,$(sort $(wildcard src/*.c)))
DATA = $(sort $(wildcard sql/incload--*.sql))
PGFILEDESC = "incload - incremental loads from other servers"

REGRESS = $(patsubst test/sql/%.sql,%,$(sort $(wildcard test/sql/*.sql)))
REGRESS_OPTS = --inputdir=test

ISOLATION = $(patsubst test/isolation/specs/%.spec,%,$(sort $(wildcard test/isolation/specs/*.spec)))
# PostgreSQL 15 has no --expecteddir: it finds expected/ by --outputdir.
ISOLATION_OPTS = --inputdir=test/isolation --outputdir=test/isolation \
	$(if $(filter-out 15,$(MAJORVERSION)),--expecteddir=test/isolation)

TAP_TESTS = 1
PROVE_TESTS = $(sort $(wildcard test/t/*.pl))
PROVE_FLAGS += -I test/perl

# Warnings are errors; WERROR= turns that off for a compiler nobody has tried.
# The three that are switched off are tripped by the server's own headers.
WERROR ?= -Werror
PG_CPPFLAGS = -I$(libpq_srcdir)
PG_CFLAGS = -Wall -Wextra -Wshadow=compatible-local $(WERROR) \
	-Wno-unused-parameter -Wno-sign-compare -Wno-missing-field-initializers
SHLIB_LINK_INTERNAL = $(libpq)

# libcurl, for alerts: headers and libraries where it says they are
CURL_CONFIG ?= curl-config
PG_CPPFLAGS += $(shell $(CURL_CONFIG) --cflags 2>/dev/null)
SHLIB_LINK = $(or $(shell $(CURL_CONFIG) --libs 2>/dev/null),-lcurl)

# No bitcode: it would need clang, and nothing here is worth inlining by the JIT.
override with_llvm = no

STAMP = src/.built-for
EXTRA_CLEAN = $(STAMP) test/isolation/results test/isolation/output_iso test/isolation/tmp_check_iso

all:

PG_CONFIG ?= pg_config
# Empty where there is no server yet: the targets below bring one.
PGXS := $(shell $(PG_CONFIG) --pgxs 2>/dev/null)

ifneq ($(wildcard $(PGXS)),)
include $(PGXS)

# Objects built for another server, or with other headers, are built again.
BUILT_FOR := $(shell $(PG_CONFIG) --version --pgxs | tr '\n' ' ')
ifneq ($(BUILT_FOR),$(shell cat $(STAMP) 2>/dev/null))
$(shell echo '$(BUILT_FOR)' >$(STAMP))
endif
$(OBJS): $(STAMP) Makefile $(wildcard src/*.h)
else
all install installcheck clean:
	@echo >&2 "make: '$(PG_CONFIG)' does not lead to PostgreSQL's server headers;"
	@echo >&2 "install them (as root: tools/setup build) or give PG_CONFIG=/path/to/pg_config"
	@exit 1
endif

test:
	@tools/test model regress isolation tap

regress isolation tap model:
	@tools/test $@

torture:
	@bench/torture

scheduler:
	@bench/scheduler

demo:
	@demo/run

gameday:
	@demo/gameday

bench:
	@bench/run

matrix:
	@tools/matrix

lint:
	@shellcheck -x .ci/run demo/run demo/gameday bench/run bench/torture bench/alerts test/model/run $(wildcard bench/peers/*) $(filter-out %.pl,$(wildcard tools/*))

.PHONY: all test regress isolation tap model torture scheduler demo gameday bench matrix lint
