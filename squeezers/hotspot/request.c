// SPDX-License-Identifier: Apache-2.0 OR MIT
/* A parser for this one form of JSON object: {"squeeze":{"heap":BOOL,"trim":BOOL,"level":"keep"|"all"}}. */
#include "request.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

struct text {
	const char *at, *end;
};

static void skip_space(struct text *text)
{
	while (text->at < text->end && strchr(" \t\r\n", *text->at) && *text->at)
		text->at++;
}

/* Takes the word if it comes next, behind white space. */
static bool take(struct text *text, const char *word)
{
	size_t length = strlen(word);

	skip_space(text);
	if ((size_t)(text->end - text->at) < length || memcmp(text->at, word, length))
		return false;
	text->at += length;
	return true;
}

/* A character of a string: as it is, or as an escape. All that are known are letters. */
static bool take_letter(struct text *text, char letter)
{
	char escape[sizeof("\\u0000")];

	if (text->at < text->end && *text->at == letter) {
		text->at++;
		return true;
	}
	snprintf(escape, sizeof(escape), "\\u%04x", letter);
	if (text->end - text->at < 6 || memcmp(text->at, escape, 2) || strncasecmp(text->at + 2, escape + 2, 4))
		return false;
	text->at += 6;
	return true;
}

/* Takes this string if it comes next, behind white space. */
static bool take_string(struct text *text, const char *string)
{
	struct text rest = *text;

	if (!take(&rest, "\""))
		return false;
	for (; *string; string++)
		if (!take_letter(&rest, *string))
			return false;
	if (rest.at == rest.end || *rest.at != '"')
		return false;
	rest.at++;
	*text = rest;
	return true;
}

/* `"name":`. */
static bool take_key(struct text *text, const char *name)
{
	struct text start = *text;

	if (take_string(text, name) && take(text, ":"))
		return true;
	*text = start;
	return false;
}

static bool take_bool(struct text *text, bool *value)
{
	*value = take(text, "true");
	return *value || take(text, "false");
}

static bool take_level(struct text *text, bool *all)
{
	*all = take_string(text, "all");
	return *all || take_string(text, "keep");
}

/* One `"key":value` of the inner object; `seen` has a bit for each key. */
static const char *take_member(struct text *text, struct request *request, unsigned int *seen)
{
	unsigned int key;
	bool valid;

	if (take_key(text, "heap")) {
		key = 1;
		valid = take_bool(text, &request->heap);
	} else if (take_key(text, "trim")) {
		key = 2;
		valid = take_bool(text, &request->trim);
	} else if (take_key(text, "level")) {
		key = 4;
		valid = take_level(text, &request->all);
	} else {
		return "this is not JSON, or has an unknown key: heap, trim and level are known";
	}
	if (!valid)
		return "a value is wrong: heap and trim are true or false, level is \"keep\" or \"all\"";
	if (*seen & key)
		return "a key is there twice";
	*seen |= key;
	return NULL;
}

const char *request_parse(const char *line, size_t length, struct request *request)
{
	struct text text = {line, line + length};
	unsigned int seen = 0;

	*request = (struct request){.heap = true, .trim = true, .all = false};
	if (!take(&text, "{") || !take_key(&text, "squeeze") || !take(&text, "{"))
		return "this is no request: it begins with {\"squeeze\":{";
	if (!take(&text, "}")) {
		do {
			const char *error = take_member(&text, request, &seen);

			if (error)
				return error;
		} while (take(&text, ","));
		if (!take(&text, "}"))
			return "this is not JSON: a comma or a brace is missing";
	}
	if (!take(&text, "}"))
		return "a request has one key, and ends with two braces";
	skip_space(&text);
	return text.at == text.end ? NULL : "there is something behind the request";
}
