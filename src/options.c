/*
 * options.c
 *		The options of a job: their names, types, defaults and values.
 *
 * One table lists every option with the place of its value; reading, checking
 * and incload_options() all go by it. An option is in the table once it works.
 */
#include "postgres.h"

#include "fmgr.h"
#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/datetime.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"
#include "utils/varlena.h"

#include "compat.h"
#include "options.h"
#include "trouble.h"

typedef enum OptionForm
{
	OPTION_TEXT,				/* char *: any string but an empty one */
	OPTION_CHOICE,				/* int: one of a list of words */
	OPTION_ROWS,				/* int64: a whole number of rows from 1 */
	OPTION_RATE,				/* int64: rows a second, from 0 */
	OPTION_COUNT,				/* int64: a whole number of rows from 0 */
	OPTION_TIMES,				/* int64: a whole number from 0 */
	OPTION_FRACTION,			/* double from 0 to 1; its preset is in percent */
	OPTION_WORKERS,				/* int64: a whole number from 1 */
	OPTION_SWITCH,				/* bool: true or false */
	OPTION_NAMES,				/* List of char *: an array of strings */
	OPTION_EXPRESSIONS,			/* List of Transform *: an object of strings */
	OPTION_DURATION				/* int64 milliseconds: an interval */
} OptionForm;

typedef struct OptionRule
{
	const char *name;
	OptionForm	form;
	size_t		place;			/* offset in JobOptions */
	const char *words[5];		/* for a choice: the values from 1 on */
	int64		preset;			/* the value when not set, for numbers */
	const char *preset_text;	/* the same for people */
	const char *meaning;
} OptionRule;

#define PLACE(field) offsetof(JobOptions, field)

static const OptionRule rules[] = {
	{"watermark_kind", OPTION_CHOICE, PLACE(watermark_kind), {"time", "id", "epoch_s", "epoch_ms"}, 0, "by its type",
	"what a watermark's value is: a time, an id, or seconds or milliseconds since 1970 in a number"},
	{"watermark_fallback", OPTION_TEXT, PLACE(watermark_fallback), {0}, 0, NULL,
	"an id that grows, tracked beside the watermark for rows whose watermark is NULL"},
	{"future_guard", OPTION_DURATION, PLACE(future_guard), {0}, 300000, "5 minutes",
	"a watermark further ahead of the source's clock is loaded and reported, and counts neither for the checkpoint nor for the lag"},
	{"only_newer", OPTION_SWITCH, PLACE(only_newer), {0}, 0, "false",
	"for a source that is a log of versions: a version with an older watermark never overwrites a newer one"},
	{"start_at", OPTION_TEXT, PLACE(start_at), {0}, 0, NULL,
	"watermark at which the first run starts, inclusive"},
	{"lookback", OPTION_TEXT, PLACE(lookback), {0}, 0, "15 minutes for a time with a key, else 0",
	"how far below the checkpoint each run looks again for rows that came late: an interval, or a number for an id"},
	{"settle", OPTION_DURATION, PLACE(settle), {0}, 5000, "5 seconds",
	"where open transactions of the source cannot be seen: how old a row must be to count as settled"},
	{"source_timezone", OPTION_TEXT, PLACE(source_timezone), {0}, 0, "the source server's",
	"the zone of a watermark that is a time without zone"},
	{"null_watermark", OPTION_CHOICE, PLACE(null_watermark), {"skip", "always", "error"}, 0,
		"always for upsert, error for append",
	"what becomes of rows without a watermark: never read, read by every run, or an error"},
	{"filter", OPTION_TEXT, PLACE(filter), {0}, 0, NULL,
	"an expression over the source's columns: only rows for which it is true are read"},
	{"columns", OPTION_NAMES, PLACE(columns), {0}, 0, "all",
	"the source columns to load"},
	{"exclude", OPTION_NAMES, PLACE(exclude), {0}, 0, "none",
	"source columns to leave out"},
	{"transforms", OPTION_EXPRESSIONS, PLACE(transforms), {0}, 0, "none",
	"for a column, the expression over the source's columns that is loaded in its stead"},
	{"deletes", OPTION_CHOICE, PLACE(deletes), {"ignore", "soft", "tombstone", "prune"}, 0, "ignore",
	"how rows that are deleted at the source go: not at all, by a column that marks them, by a relation that lists their keys, or by comparing the keys of both sides"},
	{"deleted_column", OPTION_TEXT, PLACE(deleted_column), {0}, 0, NULL,
	"with deletes soft: the source column that marks a row, a boolean or a time that is not null, or a condition in parentheses"},
	{"deleted_rows", OPTION_CHOICE, PLACE(deleted_rows), {"delete", "keep"}, 0, "delete",
	"with deletes soft: whether a marked row is deleted from the target, or kept there with its mark"},
	{"tombstone_source", OPTION_TEXT, PLACE(tombstone_source), {0}, 0, NULL,
	"with deletes tombstone: the relation that lists the keys of deleted rows, beside the source"},
	{"tombstone_watermark", OPTION_TEXT, PLACE(tombstone_watermark), {0}, 0, "deleted_at",
	"with deletes tombstone: the watermark of that relation, a column or an expression in parentheses"},
	{"max_delete_fraction", OPTION_FRACTION, PLACE(max_delete_fraction), {0}, 20, "0.2",
	"the part of the target's rows, from 0 to 1, that a prune or a repair may delete; one that would delete more fails instead"},
	{"on_conflict", OPTION_CHOICE, PLACE(on_conflict), {"source", "target", "report"}, 0, "source",
	"whose version a repair keeps of a row that may have been changed at the target: the source's, the target's, or the target's with an event"},
	{"reconcile_schedule", OPTION_TEXT, PLACE(reconcile_schedule), {0}, 0, NULL,
	"when the job is reconciled by itself, in mode hash: an interval or a cron line, as the schedule of runs"},
	{"reconcile_repair", OPTION_SWITCH, PLACE(reconcile_repair), {0}, 0, "false",
	"whether it mends then what differs"},
	{"reader", OPTION_CHOICE, PLACE(reader), {"copy", "relation"}, 0, "auto",
	"copy: over a connection of incload's own, for postgres_fdw tables; relation: through the executor"},
	{"schema_change", OPTION_CHOICE, PLACE(schema_change), {"evolve", "fail"}, 0, "ignore",
	"what a column of the source does that is new, gone or of another type: evolve: foreign table and target follow; fail: the job stops; ignore: it goes on without, and says so"},
	{"batch_rows", OPTION_ROWS, PLACE(batch_rows), {0}, 500000, "500000",
	"rows that incload_run_in_batches commits at once"},
	{"max_rate", OPTION_RATE, PLACE(max_rate), {0}, 0, "no limit",
	"rows a second that each reader takes at most, for the source's sake"},
	{"parallel", OPTION_WORKERS, PLACE(parallel), {0}, 1, "1",
	"readers of a first load or a refresh, and workers that load the windows of a backfill, at once"},
	{"full_refresh_mode", OPTION_CHOICE, PLACE(full_refresh_mode), {"merge", "truncate", "swap"}, 0,
		"merge with a key, else truncate",
	"how a full refresh makes the target equal to the source: row by row, emptied first, or filled anew beside the old rows"},
	{"first_load", OPTION_CHOICE, PLACE(first_load), {"direct", "batches"}, 0,
		"direct; batches where batch_rows is set",
	"how an empty target is filled where both ways are open: all at once and then its indexes, or in batches like any load"},
	{"reject_limit", OPTION_COUNT, PLACE(reject_limit), {0}, 0, "0",
	"rows that cannot be taken to put aside in incload.reject before the run fails"},
	{"pre_sql", OPTION_TEXT, PLACE(pre_sql), {0}, 0, NULL,
	"SQL to run here as the owner before the first row, in the transaction of the first batch"},
	{"post_sql", OPTION_TEXT, PLACE(post_sql), {0}, 0, NULL,
	"SQL to run here as the owner after the last row, in the transaction of the last batch"},
	{"statement_timeout", OPTION_DURATION, PLACE(statement_timeout), {0}, 0, "none",
	"longest time for a run, and for each statement at the source"},
	{"lock_timeout", OPTION_DURATION, PLACE(lock_timeout), {0}, 0, "none",
	"longest wait for a lock, here and at the source"},
	{"depends_on", OPTION_NAMES, PLACE(depends_on), {0}, 0, "none",
	"jobs that must have succeeded first in the same round, or a scheduled run is skipped"},
	{"retry_limit", OPTION_TIMES, PLACE(retry_limit), {0}, 3, "3",
	"how often a scheduled run that failed by a passing fault is tried again before its next time"},
	{"retry_delay", OPTION_DURATION, PLACE(retry_delay), {0}, 30000, "30 seconds",
	"how long after the first such failure; twice as long after each further one, up to 15 minutes"},
	{"pause_after", OPTION_TIMES, PLACE(pause_after), {0}, 10, "10",
	"failures in a row by lasting faults after which a scheduled job pauses itself; 0 for never"},
	{"freshness_slo", OPTION_DURATION, PLACE(freshness_slo), {0}, 0, "none",
	"objective: the target is to be no older than this; a job whose target is older is late"},
	{"success_slo", OPTION_FRACTION, PLACE(success_slo), {0}, 0, "none; 0.99 of the time with freshness_slo",
	"objective: the part of the runs that are to succeed, and of the time in which the target is to be as fresh as freshness_slo says"},
};

static const char *const form_names[] = {
	[OPTION_TEXT] = "text",
	[OPTION_CHOICE] = "choice",
	[OPTION_ROWS] = "integer",
	[OPTION_RATE] = "integer",
	[OPTION_COUNT] = "integer",
	[OPTION_TIMES] = "integer",
	[OPTION_FRACTION] = "number",
	[OPTION_WORKERS] = "integer",
	[OPTION_SWITCH] = "boolean",
	[OPTION_NAMES] = "text[]",
	[OPTION_EXPRESSIONS] = "object",
	[OPTION_DURATION] = "interval",
};

/* the words a choice takes, for a message or a listing */
static char *
choice_words(const OptionRule *rule)
{
	StringInfoData buf;

	initStringInfo(&buf);
	for (int i = 0; rule->words[i]; i++)
		appendStringInfo(&buf, "%s%s", i ? ", " : "", rule->words[i]);
	return buf.data;
}

static const char list_hint[] = "SELECT * FROM incload_options() lists the options.";

static const OptionRule *
find_rule(const char *name)
{
	const OptionRule *nearest = NULL;
	/* a name that has less than half in common is not a slip of the pen */
	int			nearest_distance = strlen(name) / 2 + 1;

	for (int i = 0; i < lengthof(rules); i++)
		if (strcmp(rules[i].name, name) == 0)
			return &rules[i];

	for (int i = 0; i < lengthof(rules) && strlen(name) <= NAMEDATALEN; i++)
	{
		int			distance = varstr_levenshtein(name, strlen(name), rules[i].name,
												  strlen(rules[i].name), 1, 1, 1, true);

		if (distance < nearest_distance)
		{
			nearest_distance = distance;
			nearest = &rules[i];
		}
	}

	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("unrecognized option \"%s\"", name),
			 nearest ? errdetail("The nearest option is \"%s\".", nearest->name)
			 : errdetail("No option has a name like that."),
			 errhint("%s", list_hint)));
	return NULL;				/* keep compiler quiet */
}

static void
bad_value(const OptionRule *rule, const char *wanted)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("invalid value for option \"%s\"", rule->name),
			 errdetail("The option takes %s.", wanted),
			 errhint("%s", list_hint)));
}

/* a JSON scalar as text; strings, numbers and booleans are taken alike */
static char *
scalar_text(const OptionRule *rule, JsonbValue *value, const char *wanted)
{
	char	   *text = NULL;

	if (value->type == jbvString)
		text = pnstrdup(value->val.string.val, value->val.string.len);
	else if (value->type == jbvNumeric)
		text = DatumGetCString(DirectFunctionCall1(numeric_out,
												   NumericGetDatum(value->val.numeric)));
	else
		bad_value(rule, wanted);
	if (text[strspn(text, " \t\r\n")] == '\0')
		bad_value(rule, wanted);
	return text;
}

static char *
string_element(const OptionRule *rule, JsonbValue *value, const char *wanted)
{
	if (value->type != jbvString)
		bad_value(rule, wanted);
	return scalar_text(rule, value, wanted);
}

static int
parse_choice(const OptionRule *rule, JsonbValue *value)
{
	char	   *wanted = psprintf("one of: %s", choice_words(rule));
	char	   *word = scalar_text(rule, value, wanted);

	for (int i = 0; rule->words[i]; i++)
		if (strcmp(rule->words[i], word) == 0)
			return i + 1;
	/* the word for "not set" may be said as well */
	if (rule->preset_text && strcmp(rule->preset_text, word) == 0)
		return 0;
	bad_value(rule, wanted);
	return 0;					/* keep compiler quiet */
}

static int64
parse_number(const OptionRule *rule, JsonbValue *value, int64 least, int64 most, const char *wanted)
{
	char	   *text = scalar_text(rule, value, wanted);
	char	   *end;
	int64		number;

	errno = 0;
	number = strtoll(text, &end, 10);
	if (errno != 0 || *end != '\0' || number < least || number > most)
		bad_value(rule, wanted);
	return number;
}

static double
parse_fraction(const OptionRule *rule, JsonbValue *value)
{
	const char *wanted = "a number from 0 to 1";
	char	   *text = scalar_text(rule, value, wanted);
	char	   *end;
	double		number;

	errno = 0;
	number = strtod(text, &end);
	if (errno != 0 || *end != '\0' || !(number >= 0 && number <= 1))
		bad_value(rule, wanted);
	return number;
}

/* milliseconds; months count 30 days and days 24 hours, as interval comparison does */
static int64
parse_duration(const OptionRule *rule, JsonbValue *value)
{
	const char *wanted = "an interval of at least a millisecond and at most 24 days, such as \"30 seconds\"";
	char	   *text = string_element(rule, value, wanted);
	Interval   *span;
	int64		ms;
	Trouble		trouble;

	trouble_begin(&trouble, psprintf("The option \"%s\" takes %s.", rule->name, wanted), list_hint);
	span = DatumGetIntervalP(DirectFunctionCall3(interval_in, CStringGetDatum(text),
												 ObjectIdGetDatum(InvalidOid),
												 Int32GetDatum(-1)));
	trouble_end(&trouble);
	ms = span->time / 1000 +
		((int64) span->month * DAYS_PER_MONTH + span->day) * SECS_PER_DAY * 1000;
	if (ms < 1 || ms > INT_MAX)
		bad_value(rule, wanted);
	return ms;
}

static bool
parse_switch(const OptionRule *rule, JsonbValue *value)
{
	if (value->type != jbvBool)
		bad_value(rule, "true or false");
	return value->val.boolean;
}

static List *
parse_names(const OptionRule *rule, JsonbValue *value)
{
	const char *wanted = "an array of names";
	List	   *names = NIL;
	JsonbIterator *it;
	JsonbValue	element;
	JsonbIteratorToken token;

	if (value->type != jbvBinary || !JsonContainerIsArray(value->val.binary.data) ||
		JsonContainerIsScalar(value->val.binary.data))
		bad_value(rule, wanted);
	it = JsonbIteratorInit(value->val.binary.data);
	while ((token = JsonbIteratorNext(&it, &element, true)) != WJB_DONE)
		if (token == WJB_ELEM)
			names = lappend(names, string_element(rule, &element, wanted));
	if (names == NIL)
		bad_value(rule, wanted);
	return names;
}

static List *
parse_expressions(const OptionRule *rule, JsonbValue *value)
{
	const char *wanted = "an object of expressions by column name, such as {\"email\": \"md5(email)\"}";
	List	   *list = NIL;
	JsonbIterator *it;
	JsonbValue	element;
	JsonbIteratorToken token;
	Transform  *transform = NULL;

	if (value->type != jbvBinary || !JsonContainerIsObject(value->val.binary.data))
		bad_value(rule, wanted);
	it = JsonbIteratorInit(value->val.binary.data);
	while ((token = JsonbIteratorNext(&it, &element, true)) != WJB_DONE)
	{
		if (token == WJB_KEY)
		{
			transform = palloc0(sizeof(Transform));
			transform->column = string_element(rule, &element, wanted);
		}
		else if (token == WJB_VALUE)
		{
			transform->expression = string_element(rule, &element, wanted);
			list = lappend(list, transform);
		}
	}
	return list;
}

static void
set_option(JobOptions *options, const OptionRule *rule, JsonbValue *value)
{
	void	   *place = (char *) options + rule->place;

	switch (rule->form)
	{
		case OPTION_TEXT:
			*(char **) place = scalar_text(rule, value, "a string that is not empty");
			break;
		case OPTION_CHOICE:
			*(int *) place = parse_choice(rule, value);
			break;
		case OPTION_ROWS:
			*(int64 *) place = parse_number(rule, value, 1, PG_INT64_MAX, "a whole number of rows, at least 1");
			break;
		case OPTION_RATE:
			*(int64 *) place = parse_number(rule, value, 0, INT_MAX, "a whole number of rows a second, 0 for no limit");
			break;
		case OPTION_COUNT:
			*(int64 *) place = parse_number(rule, value, 0, INT_MAX, "a whole number of rows, 0 for none");
			break;
		case OPTION_WORKERS:
			*(int64 *) place = parse_number(rule, value, 1, 64, "a whole number of workers from 1 to 64");
			break;
		case OPTION_TIMES:
			*(int64 *) place = parse_number(rule, value, 0, 1000, "a whole number from 0 to 1000");
			break;
		case OPTION_FRACTION:
			*(double *) place = parse_fraction(rule, value);
			break;
		case OPTION_SWITCH:
			*(bool *) place = parse_switch(rule, value);
			break;
		case OPTION_NAMES:
			*(List **) place = parse_names(rule, value);
			break;
		case OPTION_EXPRESSIONS:
			*(List **) place = parse_expressions(rule, value);
			break;
		case OPTION_DURATION:
			*(int64 *) place = parse_duration(rule, value);
			break;
	}
}

static void
require_object(Jsonb *json)
{
	if (!JB_ROOT_IS_OBJECT(json))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("options must be a JSON object"),
				 errdetail("The value given is an array or a single value."),
				 errhint("For example: options => '{\"batch_rows\": 100000}'.")));
}

JobOptions *
options_parse(Jsonb *json)
{
	JobOptions *options = palloc0(sizeof(JobOptions));
	JsonbIterator *it;
	JsonbValue	element;
	JsonbIteratorToken token;
	const OptionRule *rule = NULL;

	for (int i = 0; i < lengthof(rules); i++)
		if (rules[i].form == OPTION_ROWS || rules[i].form == OPTION_RATE ||
			rules[i].form == OPTION_TIMES || rules[i].form == OPTION_WORKERS ||
			rules[i].form == OPTION_DURATION)
			*(int64 *) ((char *) options + rules[i].place) = rules[i].preset;
		else if (rules[i].form == OPTION_FRACTION)
			*(double *) ((char *) options + rules[i].place) = rules[i].preset / 100.0;
	if (json == NULL)
		return options;

	require_object(json);
	it = JsonbIteratorInit(&json->root);
	while ((token = JsonbIteratorNext(&it, &element, true)) != WJB_DONE)
	{
		if (token == WJB_KEY)
			rule = find_rule(pnstrdup(element.val.string.val, element.val.string.len));
		else if (token == WJB_VALUE)
			set_option(options, rule, &element);
	}
	if (options->columns && options->exclude)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("options \"columns\" and \"exclude\" cannot be used together"),
				 errdetail("Each says which source columns are loaded."),
				 errhint("Keep one of them; null takes an option away.")));
	return options;
}

bool
options_has(Jsonb *json, const char *name)
{
	return getKeyJsonValueFromContainer(&json->root, name, strlen(name), NULL) != NULL;
}

Jsonb *
options_merge(Jsonb *base, Jsonb *changes)
{
	Datum		merged;
	JsonbIterator *it;
	JsonbValue	element;
	JsonbIteratorToken token;

	require_object(changes);
	/* an unknown name is not taken away in silence, either */
	it = JsonbIteratorInit(&changes->root);
	while ((token = JsonbIteratorNext(&it, &element, true)) != WJB_DONE)
		if (token == WJB_KEY)
			(void) find_rule(pnstrdup(element.val.string.val, element.val.string.len));
	merged = DirectFunctionCall2(jsonb_concat, JsonbPGetDatum(base), JsonbPGetDatum(changes));
	/* not recursive in effect: no option takes a null inside */
	return DatumGetJsonbP(DirectFunctionCall1(jsonb_strip_nulls, merged));
}

PG_FUNCTION_INFO_V1(incload_options);

/*
 * incload_options() → (name, type, default, meaning)
 *		Every option of a job, as the table above has it.
 */
Datum
incload_options(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;

	InitMaterializedSRF(fcinfo, 0);
	for (int i = 0; i < lengthof(rules); i++)
	{
		const OptionRule *rule = &rules[i];
		Datum		values[4];
		bool		nulls[4] = {0};

		values[0] = CStringGetTextDatum(rule->name);
		values[1] = CStringGetTextDatum(rule->form == OPTION_CHOICE
										? choice_words(rule) : form_names[rule->form]);
		nulls[2] = rule->preset_text == NULL;
		if (!nulls[2])
			values[2] = CStringGetTextDatum(rule->preset_text);
		values[3] = CStringGetTextDatum(rule->meaning);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}
