/*
 * identity.c
 *		Whether a source is the one that a checkpoint was made for.
 *
 * Another server has other rows below the checkpoint, and nobody would ever
 * read them. The same server after a failover, or another table under the
 * source's name, has rows that can be looked at again, where there is a key.
 */
#include "postgres.h"

#include "utils/builtins.h"

#include "catalog.h"
#include "identity.h"

/* parts of an epoch (witness.c) */
#define EPOCH_SERVER 0
#define EPOCH_TIMELINE 1
#define EPOCH_RELATION 5

/* the n-th of an epoch's parts, from 0 */
static char *
epoch_part(const char *epoch, int n)
{
	for (; n > 0; n--)
		epoch += strcspn(epoch, "/") + 1;
	return pnstrdup(epoch, strcspn(epoch, "/"));
}

/*
 * A new timeline: a standby was promoted, or a backup restored. What had not
 * reached it is gone from the source, and its sequences may give out ids once
 * more that were given out before. So everything is read again, where that
 * doubles nothing.
 */
static bool
accept_timeline(const Job *job, const Checkpoint *checkpoint, const SourceState *state)
{
	char	   *was = epoch_part(checkpoint->epoch, EPOCH_TIMELINE);
	char	   *is = epoch_part(state->epoch, EPOCH_TIMELINE);

	if (strcmp(was, is) == 0)
		return false;
	if (job->key == NIL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("source %s of job \"%s\" is on another timeline than before", job->source_name, job->name),
				 errdetail("It was %s and is %s: a standby was promoted, or a backup restored, and without a key nothing can be read again to see what was lost.", was, is),
				 errhint("SELECT incload_accept_source(%s) goes on from the checkpoint; SELECT incload_refresh(%s) loads it anew.",
						 quote_literal_cstr(job->name), quote_literal_cstr(job->name))));
	catalog_event_once(job, "new_timeline", is,
					   psprintf("the source is on timeline %s and was on %s, by a promotion or a restored backup: everything is read again",
								is, was));
	return true;
}

/*
 * Another table of the same server: it was dropped and made again, or one that
 * was made beside it has taken its name, or the foreign server leads to another
 * database. Its rows may be older than the checkpoint, and nobody would read them.
 */
static bool
accept_relation(const Job *job, const Checkpoint *checkpoint, const SourceState *state)
{
	char	   *was = epoch_part(checkpoint->epoch, EPOCH_RELATION);
	char	   *is = epoch_part(state->epoch, EPOCH_RELATION);

	if (strcmp(was, is) == 0)
		return false;
	if (job->key == NIL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("source %s of job \"%s\" is another table than before", job->source_name, job->name),
				 errdetail("It was dropped and created again, or another one has taken its name, and without a key nothing can be read again to see what is new."),
				 errhint("SELECT incload_accept_source(%s) goes on from the checkpoint; SELECT incload_refresh(%s) loads it anew.",
						 quote_literal_cstr(job->name), quote_literal_cstr(job->name))));
	catalog_event_once(job, "source_replaced", is,
					   "the source is another table than before, of the same name: everything is read again");
	return true;
}

bool
identity_check(const Job *job, const Checkpoint *checkpoint, const SourceState *state)
{
	char	   *was;
	char	   *is;
	bool		reread;

	if (checkpoint->epoch == NULL)
		return false;
	was = epoch_part(checkpoint->epoch, EPOCH_SERVER);
	is = epoch_part(state->epoch, EPOCH_SERVER);
	if (strcmp(was, is) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("source %s of job \"%s\" is on another server than before", job->source_name, job->name),
				 errdetail("Its system identifier is %s, and was %s.", is, was),
				 errhint("If it has the same rows, as after an upgrade, SELECT incload_accept_source(%s) goes on with it; SELECT incload_refresh(%s) loads it anew.",
						 quote_literal_cstr(job->name), quote_literal_cstr(job->name))));
	reread = accept_timeline(job, checkpoint, state);
	return accept_relation(job, checkpoint, state) || reread;
}
