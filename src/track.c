/*
 * track.c
 *		One thing that a job tracks, and how far it is settled.
 *
 * A bound that cannot be settled yet is noted with the virtual transactions
 * that it waits for; in a later run, when all of those are gone, it is settled.
 */
#include "postgres.h"

#include "compat.h"
#include "names.h"
#include "track.h"

/* noted bounds are thinned out beyond this */
#define MAX_NOTED 16

/* bounds that only time can settle are noted no closer together than this */
#define NOTE_INTERVAL_MS 1000

/* "pid:backend/number", where a prepared transaction has no pid, without the pid */
static const char *
without_pid(const char *name)
{
	const char *colon = strchr(name, ':');

	return colon ? colon + 1 : name;
}

/*
 * Was a transaction begun where another one was? By the same process; or it is
 * prepared, and only the number of its backend is left.
 */
static bool
same_session(const char *was, const char *is)
{
	const char *a = was;

	if (strchr(was, ':') == NULL)
		return false;
	if (strchr(is, ':') == NULL)
		a = without_pid(was);
	return strncmp(a, is, strcspn(a, a == was ? ":" : "/") + 1) == 0;
}

/*
 * What is still waited for. One query message can hold several transactions, and
 * now() is the message's arrival in all of them: where the value may come from
 * there, who is gone is followed by what his session has open by now, and has
 * prepared after writing to the source. It is over once the session was seen
 * with nothing.
 */
static List *
still_open(const Track *track, List *waits, List *open, List *prepared)
{
	bool		follows = track->type->kind == WATERMARK_TIME || track->feed == FEED_OTHER;
	List	   *left = NIL;
	ListCell   *lw;
	ListCell   *lo;

	foreach(lw, waits)
	{
		const char *was = lfirst(lw);

		foreach(lo, open)
		{
			char	   *is = lfirst(lo);

			if (strcmp(without_pid(was), without_pid(is)) == 0 ||
				(follows && strchr(is, ':') && same_session(was, is)))
				left = list_append_unique_ptr(left, strchr(was, ':') ? is : (char *) was);
		}
		foreach(lo, prepared)
			if (follows && same_session(was, lfirst(lo)))
				left = list_append_unique_ptr(left, lfirst(lo));
	}
	return left;
}

void
track_settle_at(Track *track, const Bound *bound)
{
	if (bound_compare(track->type, bound, &track->bound) > 0)
		track->bound = *bound;
}

/* of noted bounds that wait, the first and the last matter most */
static List *
thin_out(List *noted)
{
	List	   *kept = NIL;

	if (list_length(noted) <= MAX_NOTED)
		return noted;
	for (int i = 0; i < list_length(noted); i++)
		if (i == 0 || i == list_length(noted) - 1 || i % 2 == 1)
			kept = lappend(kept, list_nth(noted, i));
	return kept;
}

static void
note_bound(Track *track, const Bound *bound, List *waits, TimestampTz now)
{
	NotedBound *note = palloc0(sizeof(NotedBound));

	note->bound = *bound;
	note->at = now;
	note->waits = waits;
	track->noted = thin_out(lappend(track->noted, note));
}

void
track_review(Track *track, List *open, List *prepared)
{
	ListCell   *lc;

	foreach(lc, track->was_noted)
	{
		NotedBound *note = lfirst(lc);

		/* noted by another guarantee: it says nothing of who was open */
		if (note->waits == NIL)
			continue;
		note->waits = still_open(track, note->waits, open, prepared);
		if (note->waits == NIL)
			track_settle_at(track, &note->bound);
		else
			track->noted = lappend(track->noted, note);
	}
}

void
track_settle_or_note(Track *track, const Bound *bound, List *waits, TimestampTz now)
{
	NotedBound *last = track->noted ? llast(track->noted) : NULL;

	if (!bound->is_set)
		return;
	if (waits == NIL)
		track_settle_at(track, bound);
	/* a higher bound that waits for the same ones is worth more */
	else if (last && same_names(waits, last->waits))
		last->bound = *bound;
	else
		note_bound(track, bound, waits, now);
}

void
track_settle_by_age(Track *track, const Bound *newest, TimestampTz settled_before, TimestampTz now)
{
	NotedBound *last = NULL;
	ListCell   *lc;

	foreach(lc, track->was_noted)
	{
		NotedBound *note = lfirst(lc);

		if (note->at <= settled_before && note->waits == NIL)
			track_settle_at(track, &note->bound);
		else
			track->noted = lappend(track->noted, note);
		last = note;
	}
	if (newest->is_set &&
		(last == NULL ||
		 (bound_compare(track->type, newest, &last->bound) != 0 &&
		  now - last->at >= NOTE_INTERVAL_MS * INT64CONST(1000))))
		note_bound(track, newest, NIL, now);
	else if (track->noted == NIL && last != NULL)
		/* it has become the horizon, and says that this value is known */
		track->noted = list_make1(last);
}
