/*
 * nature.c
 *		What the names of columns say about their values.
 *
 * A name is taken apart into words at underscores and at capitals within it:
 * updated_at, lastModifiedDate and LASTUPDATE tell the same. Each list below
 * has beginnings of words; one that ends in '$' is a whole word.
 */
#include "postgres.h"

#include "nodes/pg_list.h"

#include "compat.h"
#include "nature.h"

static const char *const updated_words[] = {
	"updat", "upd$", "modif", "mod$", "modstamp", "chang", "chg", "edited", "altered",
	"amended", "revised", "touched", "mtime", "sync", NULL
};

static const char *const created_words[] = {
	"creat", "insert", "add$", "added", "log$", "logged", "logtime", "recorded", "event",
	"receiv", "ingest", "load", "enter", "entry", "regist", "post$", "posted", "occur",
	"happen", "ctime", "ordered", "placed", "issued", "sent", "captur", "observ", "measur",
	"publish", "submit", "import", NULL
};

/* times that are planned, or that a row gets later in its life if at all */
static const char *const unlikely_words[] = {
	"birth", "born", "dob$", "death", "expir", "due$", "valid", "start", "begin", "end$",
	"ends$", "ended", "until", "from$", "to$", "delet", "remov", "deadline", "schedul",
	"effectiv", "plan", "depart", "arriv", "cancel", "archiv", "hire", "next", "target",
	"expect", "estimat", "remind", "clos", "complet", "finish", "ship", "deliver", "approv",
	"paid", "resolv", NULL
};

/* words that add nothing to "updated" */
static const char *const empty_words[] = {
	"at$", "on$", "by$", "the$", "is$", "was$", "when$", "last$", "ts$", "dt$", "tm$", "d$", "t$",
	"time", "date", "datetime$", "stamp$", "row$", "rec$", "record$", "sys$", "system$", "utc$",
	"gmt$", "tz$", "local$", "db$", "src$", NULL
};

/* what may stand before a word without anything between */
static const char *const run_on_words[] = {"last", "date", "time", "row", "rec", "dt", "ts", NULL};

static bool
begins_with(const char *word, const char *beginning)
{
	size_t		length = strlen(beginning);

	if (length > 0 && beginning[length - 1] == '$')
		return strlen(word) == length - 1 && strncmp(word, beginning, length - 1) == 0;
	return strncmp(word, beginning, length) == 0;
}

/* is the word, or what follows a run-on word at its start, in the list? */
static bool
word_matches(const char *word, const char *const *list)
{
	for (int i = 0; list[i]; i++)
		if (begins_with(word, list[i]))
			return true;
	for (int i = 0; run_on_words[i]; i++)
		if (begins_with(word, run_on_words[i]) && word[strlen(run_on_words[i])] != '\0' &&
			word_matches(word + strlen(run_on_words[i]), list))
			return true;
	return false;
}

/* lower-case words of a name, char * */
static List *
words_of(const char *name)
{
	List	   *words = NIL;
	char	   *word = palloc(strlen(name) + 1);
	int			length = 0;

	for (const char *p = name;; p++)
	{
		bool		is_letter = isalnum((unsigned char) *p) || IS_HIGHBIT_SET(*p);
		bool		is_hump = p > name && isupper((unsigned char) p[0]) && islower((unsigned char) p[-1]);

		if (length > 0 && (!is_letter || is_hump))
		{
			words = lappend(words, pnstrdup(word, length));
			length = 0;
		}
		if (*p == '\0')
			return words;
		if (is_letter)
			word[length++] = pg_ascii_tolower((unsigned char) *p);
	}
}

/* is the word, in the singular or the plural, one of the relation's name? */
static bool
names_relation(const char *word, List *relation_words)
{
	ListCell   *lc;

	foreach(lc, relation_words)
	{
		const char *other = lfirst(lc);
		size_t		shorter = Min(strlen(word), strlen(other));

		if (shorter >= 3 && strncmp(word, other, shorter) == 0)
			return true;
	}
	return false;
}

WatermarkNature
watermark_nature(const char *name, const char *relation)
{
	List	   *relation_words = words_of(relation);
	bool		updated = false;
	bool		created = false;
	bool		last = false;
	bool		unlikely = false;
	bool		more = false;
	ListCell   *lc;

	foreach(lc, words_of(name))
	{
		const char *word = lfirst(lc);

		if (begins_with(word, "last"))
			last = true;
		if (word_matches(word, updated_words) || strstr(word, "updat") || strstr(word, "modif"))
			updated = true;
		else if (word_matches(word, unlikely_words))
			unlikely = true;
		else if (word_matches(word, created_words))
			created = true;
		else if (!word_matches(word, empty_words) && !names_relation(word, relation_words))
			more = true;
	}

	/* in an expression, the other words are functions and other columns */
	if (name[0] == '(')
		return updated ? NATURE_UPDATED : created ? NATURE_CREATED : NATURE_PLAIN;
	if (unlikely)
		return NATURE_UNLIKELY;
	if (updated)
		return more ? NATURE_LAST : NATURE_UPDATED;
	if (last)
		return NATURE_LAST;
	return created ? NATURE_CREATED : NATURE_PLAIN;
}

bool
nature_sees_updates(WatermarkNature nature)
{
	return nature == NATURE_UPDATED || nature == NATURE_LAST;
}

bool
name_says_key(const char *name, const char *relation)
{
	size_t		length = strlen(name);

	if (pg_strcasecmp(name, "id") == 0)
		return true;
	if (length <= 2 || pg_strcasecmp(name + length - 2, "id") != 0)
		return false;
	length -= name[length - 3] == '_' ? 3 : 2;
	/* its last letter may differ: categories has category_id */
	return length >= 3 && pg_strncasecmp(name, relation, length - 1) == 0;
}
