/*
 * alert.c
 *		Events on their way to those who want to be told.
 *
 * A scheduler looks into the outbox as often as for jobs. What is to be sent
 * together is marked as one delivery, which commits before anything is sent: if
 * the process dies afterwards, the same is sent once more with the same key.
 * While a request is under way there is no transaction, and jobs are started
 * as ever. One request a channel: who does not answer holds up no other.
 */
#include "postgres.h"

#include "access/xact.h"
#include "commands/extension.h"
#include "common/pg_prng.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/latch.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "alert.h"
#include "alert_message.h"
#include "attempt.h"
#include "catalog.h"
#include "http.h"
#include "incload.h"
#include "role.h"
#include "unattended.h"

/* retries come further and further apart, up to this */
#define LONGEST_DELAY_MS (5 * 60 * 1000)

/* what a message has in it at most */
#define MAX_ROWS "500"

/* looks are as far apart as those for jobs, but no further, where there are channels */
#define LONGEST_NAP_MS 5000

/* how long a look waits for a lock; it is tried again a second later */
#define LOCK_TIMEOUT "10ms"

/* how often the outbox is rid of what is old */
#define PRUNE_EVERY_MS (10 * 60 * 1000)

typedef enum SendState
{
	SEND_IDLE,
	SEND_UNDER_WAY,
	SEND_ENDED					/* and not yet put down */
} SendState;

/* Sender: what is known about a channel from one look to the next */
typedef struct Sender
{
	int64		channel_id;
	SendState	state;
	bool		is_resent;		/* what is under way is not from the outbox */
	char	   *outbox_ids;		/* of it, else: an array's text */
	HttpResult	result;
	int			failures;		/* of the receiver, in a row */
	TimestampTz not_before;		/* it is left alone until then */
	TimestampTz next_resend;	/* for an Alertmanager */
} Sender;

static MemoryContext own_context;
static MemoryContext look_context;
static List *senders = NIL;		/* of Sender * */
static bool has_channels = false;
static TimestampTz next_prune = 0;
static TimestampTz next_look = 0;

void
alert_begin(MemoryContext context)
{
	own_context = context;
	look_context = AllocSetContextCreate(context, "incload alerts", ALLOCSET_DEFAULT_SIZES);
}

static Sender *
sender_of(int64 channel_id)
{
	MemoryContext old;
	Sender	   *sender;
	ListCell   *lc;

	foreach(lc, senders)
		if (((Sender *) lfirst(lc))->channel_id == channel_id)
			return lfirst(lc);
	old = MemoryContextSwitchTo(own_context);
	sender = palloc0(sizeof(Sender));
	sender->channel_id = channel_id;
	senders = lappend(senders, sender);
	MemoryContextSwitchTo(old);
	return sender;
}

/* those of channels that are gone */
static void
forget_senders(List *channels)
{
	List	   *gone = NIL;
	ListCell   *lc;

	foreach(lc, senders)
	{
		Sender	   *sender = lfirst(lc);
		bool		is_there = false;
		ListCell   *channel;

		foreach(channel, channels)
			is_there |= ((Channel *) lfirst(channel))->id == sender->channel_id;
		if (!is_there)
			gone = lappend(gone, sender);
	}
	foreach(lc, gone)
	{
		Sender	   *sender = lfirst(lc);

		http_forget(sender);
		senders = list_delete_ptr(senders, sender);
		if (sender->outbox_ids)
			pfree(sender->outbox_ids);
		pfree(sender);
	}
}

/* how long after so many failures, and not for all at the same time */
static int64
delay_ms(int failures)
{
	int64		ms = 1000;

	for (int i = 1; i < failures && ms < LONGEST_DELAY_MS; i++)
		ms *= 2;
	return (int64) (Min(ms, LONGEST_DELAY_MS) * (0.75 + pg_prng_double(&pg_global_prng_state) / 2));
}

static bool
is_delivered(const HttpResult *result)
{
	return result->status >= 200 && result->status < 300;
}

/* is it this message that is refused, and not each one of the channel's? */
static bool
is_refused(const HttpResult *result)
{
	return result->status == 400 || result->status == 413 || result->status == 422;
}

static char *
trouble_of(const HttpResult *result)
{
	if (result->status == 0)
		return pstrdup(result->error);
	if (result->status >= 300 && result->status < 400)
		return psprintf("HTTP %ld: redirects are not followed", result->status);
	return psprintf("HTTP %ld", result->status);
}

/* the log tells when a receiver begins to fail, and when it is back */
static void
note_outcome(Sender *sender, const Channel *channel)
{
	TimestampTz now = GetCurrentTimestamp();

	if (is_delivered(&sender->result))
	{
		if (sender->failures > 0)
			ereport(LOG,
					(errmsg("alerts are delivered by channel \"%s\" again", channel->name)));
		sender->failures = 0;
		sender->not_before = 0;
		return;
	}
	if (sender->failures++ == 0)
		ereport(WARNING,
				(errcode(ERRCODE_CONNECTION_FAILURE),
				 errmsg("alerts cannot be delivered by channel \"%s\": %s", channel->name, trouble_of(&sender->result)),
				 errhint("They are kept, and sent again later; SELECT * FROM incload.outbox tells more.")));
	if (!is_refused(&sender->result))
		sender->not_before = TimestampTzPlusMilliseconds(now, Max(delay_ms(sender->failures), sender->result.retry_after * INT64CONST(1000)));
}

/* puts down what became of what was sent; in a transaction */
static void
settle(const Sender *sender, const Channel *channel)
{
	const char *params[4] = {sender->outbox_ids};

	if (sender->is_resent)
		return;
	if (is_delivered(&sender->result))
	{
		(void) catalog_query("UPDATE incload.outbox_store SET state = 'delivered', finished_at = clock_timestamp(), last_error = NULL"
							 " WHERE outbox_id = ANY ($1::bigint[])", 1, params);
		return;
	}
	params[1] = trouble_of(&sender->result);
	params[2] = catalog_number(channel->give_up_ms);
	params[3] = catalog_number(sender->result.retry_after);
	(void) catalog_query("UPDATE incload.outbox_store o SET last_error = $2, state = x.state,"
						 " finished_at = CASE x.state WHEN 'failed' THEN clock_timestamp() END,"
						 " next_try = greatest(o.next_try, clock_timestamp() + $4::bigint * interval '1 s')"
						 " FROM (SELECT i.outbox_id, CASE WHEN i.created_at < clock_timestamp() - $3::bigint * interval '1 ms'"
						 "   THEN 'failed' ELSE 'pending' END AS state FROM incload.outbox_store i"
						 "   WHERE i.outbox_id = ANY ($1::bigint[])) x WHERE o.outbox_id = x.outbox_id", 4, params);
}

/* of the job "o.job_id", or of all; a test is not silenced */
#define IS_SILENCED \
	"o.kind <> 'test' AND EXISTS (SELECT FROM incload.silence_store q WHERE q.ends_at > clock_timestamp()" \
	" AND (q.job_id IS NULL OR q.job_id = o.job_id))"

/*
 * What nobody is told because of a silence: what is told once, and a trouble that is over
 * before the silence is. One that lasts is told after it.
 */
static void
silence(void)
{
	if (catalog_query("SELECT FROM incload.silence_store WHERE ends_at > clock_timestamp() LIMIT 1", 0, NULL)->nrows > 0)
		(void) catalog_query("UPDATE incload.outbox_store o SET state = 'silenced', finished_at = clock_timestamp()"
							 " WHERE o.state = 'pending' AND o.delivery_id IS NULL AND o.kind IN ('notice', 'firing') AND " IS_SILENCED
							 " AND NOT EXISTS (SELECT FROM incload.alert_store a WHERE a.event_id = o.alert_id)", 0, NULL);
	/* and its end */
	(void) catalog_query("UPDATE incload.outbox_store o SET state = 'silenced', finished_at = clock_timestamp()"
						 " WHERE o.state = 'pending' AND o.delivery_id IS NULL AND o.kind = 'resolved'"
						 " AND EXISTS (SELECT FROM incload.outbox_store f WHERE f.alert_id = o.alert_id"
						 "  AND f.channel_id = o.channel_id AND f.kind = 'firing' AND f.state = 'silenced')", 0, NULL);
}

/*
 * What is next for a channel ($1): a delivery that is to be tried again, or events of
 * a cause that no delivery is under way for. Another message about a cause that is
 * still there comes no sooner than $2 ms after the last one; the end is told once
 * all of its troubles are over, and after their beginning.
 */
static const char pick_query[] =
"SELECT o.outbox_id, o.delivery_id, o.group_key, o.kind = 'resolved' FROM incload.outbox_store o"
" WHERE o.channel_id = $1::bigint AND o.state = 'pending' AND o.next_try <= clock_timestamp() AND (o.delivery_id IS NOT NULL OR ("
"  NOT EXISTS (SELECT FROM incload.outbox_store d WHERE d.channel_id = o.channel_id AND d.group_key = o.group_key"
"    AND d.state = 'pending' AND d.delivery_id IS NOT NULL)"
"  AND CASE WHEN o.kind = 'resolved' THEN"
"    NOT EXISTS (SELECT FROM incload.outbox_store f WHERE f.channel_id = o.channel_id AND f.group_key = o.group_key"
"      AND f.kind = 'firing' AND (f.state = 'pending' OR EXISTS (SELECT FROM incload.alert_store a WHERE a.event_id = f.alert_id)))"
"   ELSE NOT (" IS_SILENCED ") AND NOT coalesce((SELECT d.kind <> 'resolved'"
"      AND d.finished_at > clock_timestamp() - $2::bigint * interval '1 ms'"
"      FROM incload.outbox_store d WHERE d.channel_id = o.channel_id AND d.group_key = o.group_key AND d.state = 'delivered'"
"      ORDER BY d.finished_at DESC, d.outbox_id DESC LIMIT 1), false) END))"
" ORDER BY o.outbox_id LIMIT 1";

/* the attempt is counted, and the next one planned, before it is made */
#define TAKE "UPDATE incload.outbox_store SET delivery_id = $2::bigint, attempts = attempts + 1," \
	" next_try = clock_timestamp() + $3::bigint * interval '1 ms' WHERE outbox_id IN (SELECT o.outbox_id FROM incload.outbox_store o" \
	" WHERE o.channel_id = $1::bigint AND o.state = 'pending' AND "
#define TAKEN " ORDER BY o.outbox_id LIMIT " MAX_ROWS ") RETURNING outbox_id, attempts"

/* takes rows of the outbox for a delivery: an array's text; NULL: nothing is due. "key" is the delivery's. */
static char *
take_rows(const Channel *channel, char **key)
{
	const char *params[5] = {catalog_number(channel->id), catalog_number(channel->group_interval_ms)};
	TextRows   *rows;
	List	   *ids = NIL;
	char	  **v;

	if (channel_is_alertmanager(channel))
	{
		/* all that it has not been told yet; in which message does not matter to it */
		rows = catalog_query("SELECT count(*), max(attempts), min(outbox_id) FROM incload.outbox_store o WHERE o.channel_id = $1::bigint"
							 " AND o.state = 'pending' AND o.next_try <= clock_timestamp()"
							 " AND (o.kind = 'resolved' OR NOT (" IS_SILENCED "))", 1, params);
		v = rows->value[0];
		if (strcmp(v[0], "0") == 0)
			return NULL;
		params[1] = v[2];
		params[2] = catalog_number(delay_ms(atoi(v[1]) + 1));
		rows = catalog_query(TAKE "o.next_try <= clock_timestamp() AND (o.kind = 'resolved' OR NOT (" IS_SILENCED "))" TAKEN, 3, params);
	}
	else
	{
		rows = catalog_query(pick_query, 2, params);
		if (rows->nrows == 0)
			return NULL;
		v = rows->value[0];
		params[1] = v[1] ? v[1] : v[0];
		params[3] = v[2];
		params[4] = v[3];
		params[2] = catalog_number(delay_ms(1 + atoi(catalog_query("SELECT attempts FROM incload.outbox_store WHERE outbox_id = $1::bigint",
																	1, (const char *const *) &v[0])->value[0][0])));
		if (v[1])
			rows = catalog_query(TAKE "o.delivery_id = $2::bigint" TAKEN, 3, params);
		else
			rows = catalog_query(TAKE "o.delivery_id IS NULL AND o.group_key = $4 AND (o.kind = 'resolved') = $5::boolean"
								 " AND (o.kind = 'resolved' OR NOT (" IS_SILENCED "))" TAKEN, 5, params);
	}
	if (rows->nrows == 0)
		return NULL;
	for (int r = 0; r < rows->nrows; r++)
		ids = lappend(ids, rows->value[r][0]);
	*key = psprintf("incload-%s-%s", role_database_identity(), params[1]);
	return catalog_names_to_array(ids);
}

/* events of the troubles that an Alertmanager is to be reminded of; NULL: none */
static char *
lasting_events(const Channel *channel)
{
	const char *params[1] = {catalog_number(channel->min_rank)};

	return catalog_query("SELECT array_agg(o.event_id ORDER BY o.event_id) FROM (SELECT a.event_id, a.job_id, 'firing' AS kind"
						 "  FROM incload.alert_store a) o JOIN incload.event_store e USING (event_id)"
						 " WHERE array_position('{info,ticket,page}', e.severity) >= $1::integer AND NOT (" IS_SILENCED ")",
						 1, params)->value[0][0];
}

/* Preparing: the next message of a channel on its way into a request */
typedef struct Preparing
{
	Sender	   *sender;
	const Channel *channel;
	HttpRequest *request;
	char	   *ids;			/* of rows of the outbox, or of events: an array's text; NULL: nothing is due */
	char	   *key;			/* of the delivery; NULL: an Alertmanager is reminded */
	List	   *unmade;			/* of char *: rows of which no message can be made */
	const char *trouble;		/* why not */
} Preparing;

/* what is next for a channel */
static void
take(void *arg)
{
	Preparing  *p = arg;
	TimestampTz now = GetCurrentTimestamp();

	p->ids = take_rows(p->channel, &p->key);
	if (p->ids || !channel_is_alertmanager(p->channel) || now < p->sender->next_resend)
		return;
	p->sender->next_resend = TimestampTzPlusMilliseconds(now, p->channel->resend_ms);
	p->ids = lasting_events(p->channel);
}

static void
make(void *arg)
{
	Preparing  *p = arg;

	if (p->key)
		alert_message(p->request, p->channel, p->ids, p->key);
	else
		alert_state(p->request, p->channel, p->ids);
}

/* what is tried again later, as what was not delivered is; and without the company that it had */
static void
put_aside(void *arg)
{
	Preparing  *p = arg;
	const char *params[3] = {catalog_names_to_array(p->unmade), p->trouble, catalog_number(p->channel->give_up_ms)};

	(void) catalog_query("UPDATE incload.outbox_store o SET last_error = $2, delivery_id = NULL, state = x.state,"
						 " finished_at = CASE x.state WHEN 'failed' THEN clock_timestamp() END"
						 " FROM (SELECT i.outbox_id, CASE WHEN i.created_at < clock_timestamp() - $3::bigint * interval '1 ms'"
						 "   THEN 'failed' ELSE 'pending' END AS state FROM incload.outbox_store i"
						 "   WHERE i.outbox_id = ANY ($1::bigint[])) x WHERE o.outbox_id = x.outbox_id", 3, params);
}

/* makes the message; of rows of which none can be made, as their texts cannot be had in UTF-8, the others are told */
static ErrorData *
make_of_what_can(Preparing *p)
{
	ErrorData  *error = attempt(make, p);
	List	   *made = NIL;
	ListCell   *lc;

	if (error == NULL || p->key == NULL)
		return error;
	foreach(lc, catalog_names_from_array(p->ids))
	{
		Preparing	one = *p;

		one.ids = catalog_names_to_array(list_make1(lfirst(lc)));
		if (attempt(make, &one))
			p->unmade = lappend(p->unmade, lfirst(lc));
		else
			made = lappend(made, lfirst(lc));
	}
	p->trouble = error->message;
	p->ids = made ? catalog_names_to_array(made) : NULL;
	if (p->ids && attempt(make, p))
		p->ids = NULL;
	if (p->unmade)
	{
		ErrorData  *another = attempt(put_aside, p);

		error = another ? another : error;
	}
	return error;
}

static void
report(ErrorData *error)
{
	/* who has a row locked is soon done with it, as a rule */
	if (error->sqlerrcode != ERRCODE_LOCK_NOT_AVAILABLE)
		attempt_report(error);
}

/*
 * In a transaction: is there something to be sent by a channel? Then "request" is it. One in
 * trouble keeps no other channel's back.
 */
static bool
prepare(Sender *sender, const Channel *channel, HttpRequest *request)
{
	Preparing	p = {.sender = sender, .channel = channel, .request = request};
	TimestampTz now = GetCurrentTimestamp();
	ErrorData  *error;

	if (sender->state != SEND_IDLE || now < sender->not_before)
		return false;
	error = attempt(take, &p);
	if (error)
	{
		report(error);
		sender->not_before = TimestampTzPlusMilliseconds(now, error->sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE
														 ? 1000 : delay_ms(++sender->failures));
		return false;
	}
	error = p.ids ? make_of_what_can(&p) : NULL;
	if (error)
		report(error);
	if (p.ids == NULL || (error && p.key == NULL))
		return false;
	sender->is_resent = p.key == NULL;
	if (!sender->is_resent)
	{
		if (sender->outbox_ids)
			pfree(sender->outbox_ids);	/* of a look that failed */
		sender->outbox_ids = MemoryContextStrdup(own_context, p.ids);
	}
	request->owner = sender;
	return true;
}

static void
prune(void)
{
	TimestampTz now = GetCurrentTimestamp();
	const char *params[1] = {catalog_number(incload_run_retention)};

	if (now < next_prune || incload_run_retention == 0)
		return;
	next_prune = TimestampTzPlusMilliseconds(now, PRUNE_EVERY_MS);
	(void) catalog_query("DELETE FROM incload.outbox_store o WHERE o.state <> 'pending'"
						 " AND o.finished_at < now() - $1::bigint * interval '1 min'"
						 " AND NOT EXISTS (SELECT FROM incload.alert_store a WHERE a.event_id = o.alert_id)", 1, params);
	/* of a channel that was dropped while the event was made */
	(void) catalog_query("DELETE FROM incload.outbox_store o WHERE NOT EXISTS"
						 " (SELECT FROM incload.channel_store c WHERE c.channel_id = o.channel_id)", 0, NULL);
	(void) catalog_query("DELETE FROM incload.silence_store WHERE ends_at < now() - $1::bigint * interval '1 min'", 1, params);
}

/* the look itself: a transaction, and then what it has found is sent */
static void
look(void)
{
	List	   *requests = NIL;
	List	   *settled = NIL;
	List	   *channels = NIL;
	ListCell   *lc;
	int			nest_level;

	unattended_begin();
	MemoryContextSwitchTo(look_context);
	has_channels = false;
	/* jobs are not to wait for whoever has a channel locked */
	nest_level = NewGUCNestLevel();
	role_set("lock_timeout", LOCK_TIMEOUT);
	if (OidIsValid(get_extension_oid("incload", true)) && catalog_has_channels())
	{
		channels = alert_channels();
		has_channels = channels != NIL;
		silence();
		prune();
	}
	foreach(lc, channels)
	{
		Channel    *channel = lfirst(lc);
		Sender	   *sender = sender_of(channel->id);
		HttpRequest *request = palloc0(sizeof(HttpRequest));

		if (sender->state == SEND_ENDED)
		{
			settle(sender, channel);
			note_outcome(sender, channel);
			settled = lappend(settled, sender);
			/* what is next is found by the next look, which is at once */
			continue;
		}
		if (prepare(sender, channel, request))
			requests = lappend(requests, request);
	}
	AtEOXact_GUC(false, nest_level);
	unattended_commit();
	MemoryContextSwitchTo(look_context);
	foreach(lc, settled)
	{
		Sender	   *sender = lfirst(lc);

		if (sender->outbox_ids)
			pfree(sender->outbox_ids);
		sender->outbox_ids = NULL;
		sender->state = SEND_IDLE;
		next_look = 0;
	}
	forget_senders(channels);
	foreach(lc, requests)
	{
		HttpRequest *request = lfirst(lc);

		http_start(request);
		((Sender *) request->owner)->state = SEND_UNDER_WAY;
	}
}

TimestampTz
alert_look(void)
{
	MemoryContext caller = CurrentMemoryContext;
	TimestampTz now = GetCurrentTimestamp();
	int			nap = has_channels ? Min(incload_naptime, LONGEST_NAP_MS) : incload_naptime;

	/* further away than it was set: the clock was set back */
	if (now < next_look && next_look <= TimestampTzPlusMilliseconds(now, Max(nap, 1000)))
		return next_look;
	next_look = TimestampTzPlusMilliseconds(now, nap);
	PG_TRY();
	{
		look();
	}
	PG_CATCH();
	{
		/* a table of incload's that somebody has locked is soon free, as a rule */
		if (geterrcode() != ERRCODE_LOCK_NOT_AVAILABLE)
			EmitErrorReport();
		MemoryContextSwitchTo(caller);
		FlushErrorState();
		AbortCurrentTransaction();
		next_look = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), Max(incload_naptime, 1000));
	}
	PG_END_TRY();
	MemoryContextSwitchTo(caller);
	MemoryContextReset(look_context);
	return next_look;
}

void
alert_wait(long timeout_ms)
{
	HttpResult	result;

	if (http_running() == 0)
	{
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, timeout_ms, incload_wait_event_idle());
		return;
	}
	http_wait(timeout_ms, incload_wait_event_idle());
	while (http_take_result(&result))
	{
		Sender	   *sender = result.owner;

		sender->result = result;
		sender->state = SEND_ENDED;
		next_look = 0;
	}
}
