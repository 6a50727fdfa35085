// SPDX-License-Identifier: Apache-2.0
/* The interpreter of templates: texts and spans (cases.txt), exact messages, limits, values of JSON.
 * usage: test_jinja_render cases.txt */
#include "base/file_read.h"
#include "jinja/render.h"
#include "tests/check.h"
#include "tests/printed.h"
#include <inttypes.h>
#include <stdlib.h>

static const tsr_jinja_limits plain_limits = {.now = 1700000000};

/* Parses the template and the variables and renders; false: an error. */
static bool render(
    tsr_arena *arena, const char *text, const char *variables, const tsr_jinja_limits *limits,
    tsr_jinja_output *out, tsr_diags *diags) {
  tsr_jinja_template *of;
  tsr_jinja_value v = {0};
  tsr_json_fault fault;
  *out = (tsr_jinja_output){0};
  CHECK(tsr_jinja_read_json(arena, variables, strlen(variables), &v, &fault));
  return tsr_jinja_parse(arena, "chat.jinja", text, strlen(text), &of, diags) &&
         tsr_jinja_render(arena, of, v.dict, limits, out, diags);
}

/* ---- cases.txt ---- */

typedef struct {
  char *name, *template, *variables, *text, *spans;
} test_case;

/* The part up to the next line that begins with `mark`, which is cut off; NULL: there is none. */
static char *take_part(char **at, const char *mark) {
  char *begin = *at, *end = strstr(begin, mark);
  if (!end) return NULL;
  *end = 0;
  *at = end + strlen(mark);
  return begin;
}

static bool take_case(char **at, test_case *ret) {
  *ret = (test_case){.name = *at};
  char *line = strchr(*at, '\n');
  if (!line) return false;
  *line = 0;
  *at = line + 1;
  ret->template = take_part(at, "\n%%% with ");
  ret->variables = *at;
  line = strchr(*at, '\n');
  if (!ret->template || !line) return false;
  *line = 0;
  *at = ret->text = line + 1;
  char *next = strstr(*at, "\n%%% ");
  if (next && !strncmp(next, "\n%%% spans ", 11)) {
    *next = 0;
    ret->spans = next + 11;
    *at = ret->spans;
    next = strstr(*at, "\n%%% ");
  }
  char *end = next ? next : *at + strlen(*at) - 1;
  *end = 0;
  *at = next ? next + 5 : NULL;
  return true;
}

static void check_case(const test_case *c) {
  tsr_arena *arena = tsr_arena_new();
  tsr_diags *diags = tsr_diags_new(arena);
  tsr_jinja_output out;
  bool ok = render(arena, c->template, c->variables, &plain_limits, &out, diags);
  const char *text = out.text.data ? out.text.data : "";
  CHECK_AT(ok, "%s: refused", c->name);
  if (!ok) tsr_diags_print(diags, stderr);
  /* A NUL in the output is written as one in the file. */
  CHECK_AT(
      !ok || (out.text.length == strlen(c->text) && !memcmp(text, c->text, out.text.length)),
      "%s: the text is\n%s\nnot\n%s", c->name, text, c->text);
  tsr_text spans = {0};
  for (int i = 0; i < out.spans_count; i++)
    tsr_text_add(
        &spans, "%s[%" PRId64 ", %" PRId64 "]", i ? ", " : "[", out.spans[i].begin,
        out.spans[i].end);
  if (out.spans_count) tsr_text_add(&spans, "]");
  CHECK_AT(
      !strcmp(spans.data ? spans.data : "", c->spans ? c->spans : ""), "%s: spans %s", c->name,
      spans.data ? spans.data : "none");
  tsr_text_free(&spans);
  tsr_text_free(&out.text);
  tsr_arena_free(arena);
}

static void test_cases(const char *path) {
  tsr_arena *arena = tsr_arena_new();
  tsr_diags *diags = tsr_diags_new(arena);
  char *text;
  size_t length;
  test_case c;
  int count = 0;
  CHECK(tsr_file_read(arena, path, 1 << 20, TSR_NOWHERE, &text, &length, diags));
  char *at = strstr(text, "\n%%% ");
  CHECK(at);
  for (at = at ? at + 5 : NULL; at; count++) {
    CHECK(take_case(&at, &c));
    check_case(&c);
  }
  CHECK_AT(count > 50, "only %d cases", count);
  tsr_arena_free(arena);
}

/* ---- messages ---- */

static void check_error(
    const char *text, const char *variables, const tsr_jinja_limits *limits, const char *want) {
  tsr_arena *arena = tsr_arena_new();
  tsr_diags *diags = tsr_diags_new(arena);
  tsr_jinja_output out;
  CHECK_AT(!render(arena, text, variables, limits, &out, diags), "rendered: %s", text);
  char *got = printed_diags(arena, diags);
  CHECK_STR(got, want);
  tsr_arena_free(arena);
}

/* The first line's message alone, and its location. */
static void check_message(const char *text, const char *want) {
  tsr_arena *arena = tsr_arena_new();
  tsr_diags *diags = tsr_diags_new(arena);
  tsr_jinja_output out;
  CHECK_AT(
      !render(arena, text, "{\"x\": {\"a\": 1}, \"s\": \"text\"}", &plain_limits, &out, diags),
      "rendered: %s", text);
  char *got = printed_diags(arena, diags), *end = strchr(got, '\n');
  CHECK(end);
  if (end) *end = 0;
  CHECK_STR(got, want);
  tsr_arena_free(arena);
}

static void test_parse_errors(void) {
  check_error(
      "a\n{% for m in messages %}\n{{ m.role }}\n", "{}", NULL,
      "chat.jinja:2:4: error: this block has no 'endfor'\n"
      "    2 | {% for m in messages %}\n"
      "      |    ^~~\n");
  check_error(
      "{{ 'a' ~ }}", "{}", NULL,
      "chat.jinja:1:10: error: expected an expression, not '}}'\n"
      "    1 | {{ 'a' ~ }}\n"
      "      |          ^~\n");
#define AT(col) "chat.jinja:1:" #col ": error: "
  check_message("{{ 'a }}", AT(4) "this string has no closing quote");
  check_message("{{ '\\ud800' }}", AT(4) "this string has an invalid escape");
  check_message("{{ 99999999999999999999 }}", AT(4) "this number has more than 64 bits");
  check_message("{{ a ? b }}", AT(6) "unexpected character in an expression");
  check_message("{{ a ", AT(6) "the template ends inside of an expression");
  check_message("{# a ", AT(1) "this comment has no '#}'");
  check_message("{% raw %} a ", AT(1) "this 'raw' has no 'endraw'");
  check_message("{% include 'x' %}", AT(4) "'include' is not supported");
  check_message("{% iff x %}", AT(4) "unknown statement 'iff'");
  check_message("{% if x %}", AT(4) "this block has no 'endif'");
  check_message("{% endif %}", AT(4) "unknown statement 'endif'");
  check_message("{% for x y %}", AT(10) "expected 'in', not 'y'");
  check_message("{% set x.y.z = 1 %}", AT(11) "expected '%}', not '.'");
  check_message(
      "{{ f(*a) }}", AT(6) "arguments from a list or a dict (* and **) are not supported");
  check_message("{{ f(a=1, 2) }}", AT(11) "a positional argument follows a named one");
  check_message("{{ a[] }}", AT(5) "expected an index between these brackets");
  check_message("{{ a[1:2:3:4] }}", AT(5) "a slice should have at most three parts");
  check_message("{% call x %}{% endcall %}", AT(9) "expected a call");
  check_message("{{ a b }}", AT(6) "expected '}}', not 'b'");
  check_message("a\xff", AT(2) "invalid UTF-8: byte 0xff");
}

static void test_render_errors(void) {
  check_error(
      "{% for m in messages %}\n  {{ m.role.upper.x() }}\n{% endfor %}",
      "{\"messages\": [{\"role\": \"user\"}]}", NULL,
      "chat.jinja:2:19: error: 'x' is undefined and cannot be called\n"
      "    2 |   {{ m.role.upper.x() }}\n"
      "      |                   ^\n");
  check_error(
      "{{ raise_exception('Roles must alternate') }}", "{}", NULL,
      "chat.jinja:1:4: error: the template raises an exception: Roles must alternate\n"
      "    1 | {{ raise_exception('Roles must alternate') }}\n"
      "      |    ^~~~~~~~~~~~~~~\n");
  check_message("{{ s + 1 }}", AT(6) "'+' is not defined for a string and an integer");
  check_message("{{ y + 1 }}", AT(6) "'y' is undefined, and '+' needs a value");
  check_message("{{ y.a }}", AT(6) "'y' is undefined and has no attributes");
  check_message("{{ y['a'] }}", AT(5) "'y' is undefined and has no items");
  check_message("{{ x.b.c }}", AT(8) "'b' is undefined and has no attributes");
  check_message("{{ y() }}", AT(4) "'y' is undefined and cannot be called");
  check_message("{{ s() }}", AT(4) "a string cannot be called");
  check_message("{{ s | nope }}", AT(8) "unknown filter 'nope'");
  check_message("{{ s is nope }}", AT(9) "unknown test 'nope'");
  check_message("{{ s.zfill(3) }}", AT(6) "the method 'zfill' of a string is not supported");
  check_message("{{ x.update({}) }}", AT(6) "the method 'update' of a dict is not supported");
  check_message(
      "{% macro m(a) %}{{ varargs }}{% endmacro %}{{ m(1) }}",
      AT(20) "Jinja's variable 'varargs' is not supported");
  check_message(
      "{% set kwargs = 1 %}{% macro m() %}{% for i in [1] %}{{ kwargs }}{% endfor %}{% endmacro %}"
      "{{ m() }}",
      AT(57) "Jinja's variable 'kwargs' is not supported");
  check_message("{{ self }}", AT(4) "Jinja's variable 'self' is not supported");
  check_message(
      "{% macro m() %}{% endmacro %}{{ m.name }}",
      AT(35) "the attribute 'name' of a function is not supported");
  check_message(
      "{% macro m() %}{% endmacro %}{{ m['arguments'] }}",
      AT(34) "the attribute 'arguments' of a function is not supported");
  check_message(
      "{% for x in [1] %}{{ loop }}{% endfor %}",
      AT(22) "this value has no text, or is nested too deeply");
  check_message(
      "{{ 'a'.replace('a', 'b', count=1) }}", AT(8) "the method 'replace' has no named arguments");
  check_message("{{ 'a'.strip(chars='a') }}", AT(8) "the method 'strip' has no named arguments");
  check_message(
      "{% filter length %}abc{% endfilter %}",
      AT(4) "the filters of a filter block should give a string, not an integer");
  check_message(
      "{% filter select | first %}{% endfilter %}",
      AT(4) "the filters of a filter block should give a string, not an undefined value");
  check_message(
      "{{ ('12' | unique) | last }}",
      AT(22) "an iterator has no last item; 'list' makes a list of it");
  check_message("{{ [1].append(2) }}", AT(8) "the method 'append' of a list is not supported");
}

static void test_operand_errors(void) {
  check_message("{{ 1 // 0 }}", AT(6) "division by zero");
  check_message(
      "{{ 9223372036854775807 + 1 }}", AT(24) "the result is too large for an integer of 64 bits");
  check_message("{{ s % 1 }}", AT(6) "formatting with '%' is not supported");
  check_message("{{ 1 < s }}", AT(4) "'<' is not defined for an integer and a string");
  check_message("{{ -s }}", AT(4) "the operand of '-' is a string");
  check_message("{% for i in 3 %}{% endfor %}", AT(13) "cannot iterate over an integer");
  check_message("{{ y[1:] }}", AT(5) "'y' is undefined and has no items");
  check_message("{{ 1[1:] }}", AT(5) "an integer cannot be sliced");
  check_message("{{ [[]] | unique }}", AT(11) "'unique' cannot compare a list");
  check_message("{{ 1 | indent }}", AT(8) "'indent' needs a string, not an integer");
  check_message("{{ s[::0] }}", AT(5) "the step of a slice is 0");
  check_message("{{ s['a':] }}", AT(5) "the bounds of a slice should be integers, not a string");
  check_message("{% set a, b = [1] %}", AT(8) "2 values are needed to assign these names, not 1");
  check_message(
      "{% set x.a = 1 %}",
      AT(10) "attributes of a dict cannot be set; a namespace has such attributes");
}

static void test_argument_errors(void) {
  check_message("{{ s | trim(1) }}", AT(8) "'trim' needs a string, not an integer");
  check_message("{{ s | upper(1) }}", AT(8) "'upper' takes at most 0 positional arguments, not 1");
  check_message("{{ s | trim(set='a') }}", AT(8) "'trim' has no argument 'set'");
  check_message(
      "{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}", AT(34) "'f' has 1 parameters, not 2");
  check_message("{% macro f(a) %}{% endmacro %}{{ f(b=2) }}", AT(34) "'f' has no parameter 'b'");
  check_message("{{ [1, 'a'] | sort }}", AT(15) "'sort' cannot compare two of the items");
  check_message("{{ ([1] | select) | length }}", AT(21) "an iterator has no length");
  check_message("{{ [1] | select }}", AT(10) "this value has no text, or is nested too deeply");
  check_message("{{ range | tojson }}", AT(12) "a function cannot be written as JSON");
  check_message("{{ '\\xdf' | upper }}", AT(13) "'upper' of the character U+00DF is not supported");
  check_message(
      "{{ ('a' | safe).replace('a', 'b') }}",
      AT(17) "the method 'replace' of a string behind 'safe' is not supported");
  check_message(
      "{% macro f() %}{% generation %}{% endgeneration %}{% endmacro %}{{ f() }}",
      AT(19) "'generation' is not supported in a macro or in a body whose text is a value");
  check_message(
      "{% for x in [1] %}{{ loop([2]) }}{% endfor %}",
      AT(22) "this loop is not declared 'recursive'");
  check_message("{{ range(1000000) }}", AT(4) "a range should have at most 100000 numbers");
}

/* ---- limits ---- */

/* Each of these templates does in few nodes work that its data determines. `keys` has n keys. */
static void test_counted_work(void) {
  static const char *const templates[] = {
      "{% set a = 'a' * 1000000 %}{% set b = 'a' * 1000000 %}{% for i in range(100) %}"
      "{{ 1 if a == b }}{% endfor %}",
      "{% set a = 'a' * 1000000 %}{% set b = 'a' * 1000000 %}{% for i in range(100) %}"
      "{{ 1 if a < b }}{% endfor %}",
      "{% set a = 'a' * 1000000 %}{{ [a, a, a, a, a, a, a, a] | sort(case_sensitive=true) }}",
      "{% set a = 'a' * 1000000 %}{{ [a, a, a, a, a, a, a, a] | max(case_sensitive=true) }}",
      "{% set a = 'a' * 1000000 %}{{ [a, a, a, a, a, a, a, a].count('a' * 1000000) }}",
      "{% set a = 'a' * 1000000 %}{{ a in ['b' ~ 'a' * 999999] * 20 }}",
      "{% set a = 'a' * 1000000 %}{% set d = {a: 1} %}{% for i in range(100) %}{{ d[a] }}"
      "{% endfor %}",
      "{% set a = 'a' * 1000000 %}{% for i in range(100) %}{{ keys[a] }}{% endfor %}",
      "{% set a = 'a' * 1000000 %}{{ a.rfind('a' * 500000) }}",
      "{% for i in range(100) %}{{ 1 if dict(keys) }}{% endfor %}",
      "{% for i in range(100) %}{{ 1 if keys.copy() == keys }}{% endfor %}",
      /* Two values that share their parts. */
      "{% set n = namespace(a=[1], b=[1]) %}{% for i in range(60) %}{% set n.a = [n.a, n.a] %}"
      "{% set n.b = [n.b, n.b] %}{% endfor %}{{ 1 if n.a == n.b }}",
      "{% set n = namespace(a=[1], b=[1]) %}{% for i in range(60) %}{% set n.a = [n.a, n.a] %}"
      "{% set n.b = [n.b, n.b] %}{% endfor %}{{ 1 if n.a < n.b }}"};
  const tsr_jinja_limits limits = {.steps_max = 100000};
  tsr_text variables = {0};
  tsr_text_add(&variables, "{\"keys\": {");
  for (int i = 0; i < 3000; i++) tsr_text_add(&variables, "%s\"%d\": %d", i ? ", " : "", i, i);
  tsr_text_add(&variables, "}}");
  for (size_t i = 0; i < sizeof templates / sizeof *templates; i++) {
    tsr_arena *arena = tsr_arena_new();
    tsr_diags *diags = tsr_diags_new(arena);
    tsr_jinja_output out;
    bool ok = render(arena, templates[i], variables.data, &limits, &out, diags);
    tsr_text_free(&out.text);
    CHECK_AT(
        !ok && strstr(tsr_diags_first_error(diags), "more than 100000 steps"), "%s: %s",
        templates[i], ok ? "rendered" : tsr_diags_first_error(diags));
    tsr_arena_free(arena);
  }
  tsr_text_free(&variables);
}

/* A dict of many entries is built, copied and read in time that grows with it. */
static void test_many_keys(void) {
  tsr_arena *arena = tsr_arena_new();
  tsr_diags *diags = tsr_diags_new(arena);
  tsr_jinja_output out;
  tsr_text variables = {0};
  enum { COUNT = 100000 };
  tsr_text_add(&variables, "{\"keys\": {");
  for (int i = 0; i < COUNT; i++) tsr_text_add(&variables, "%s\"%d\": %d", i ? "," : "", i, i);
  tsr_text_add(&variables, "}}");
  CHECK(render(
      arena,
      "{% set d = dict(keys) %}{% set n = namespace(sum=0) %}"
      "{% for k in d %}{% set n.sum = n.sum + d[k] + keys[k] %}{% endfor %}"
      "{{ n.sum }} {{ d | length }} {{ keys.get('100000') }} {{ d == keys.copy() }}",
      variables.data, NULL, &out, diags));
  CHECK_STR(out.text.data, "9999900000 100000 None True");
  tsr_diags_print(diags, stderr);
  tsr_text_free(&out.text);
  tsr_text_free(&variables);
  tsr_arena_free(arena);
}

static void test_limits(void) {
  static const tsr_jinja_limits no_time = {.now = TSR_JINJA_NO_TIME};
  check_error(
      "{% for i in range(1000) %}{{ i }}{% endfor %}", "{}", &(tsr_jinja_limits){.steps_max = 500},
      "chat.jinja:1:13: error: the template needs more than 500 steps\n"
      "    1 | {% for i in range(1000) %}{{ i }}{% endfor %}\n"
      "      |             ^~~~~\n");
  check_error(
      "{{ 'abcdefgh' * 1000 }}", "{}", &(tsr_jinja_limits){.bytes_max = 4000},
      "chat.jinja:1:15: error: the template writes more than 4000 bytes of text\n"
      "    1 | {{ 'abcdefgh' * 1000 }}\n"
      "      |               ^\n");
  check_error(
      "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "{}", NULL,
      "chat.jinja:1:19: error: expressions and calls are nested more than 2000 levels deep\n"
      "    1 | {% macro f() %}{{ f() }}{% endmacro %}{{ f() }}\n"
      "      |                   ^\n");
  check_error(
      "{{ strftime_now('%Y') }}", "{}", &no_time,
      "chat.jinja:1:4: error: the template reads the current date, which data.date sets\n"
      "    1 | {{ strftime_now('%Y') }}\n"
      "      |    ^~~~~~~~~~~~\n");
  tsr_text deep = {0};
  tsr_text_add(&deep, "{{ ");
  for (int i = 0; i < 5000; i++) tsr_text_add(&deep, "(");
  for (int i = 0; i < 5000; i++) tsr_text_add(&deep, ")");
  tsr_text_add(&deep, " }}");
  check_message(
      deep.data,
      "chat.jinja:1:103: error: expressions and blocks are nested more than 200 levels deep");
  tsr_text_free(&deep);
  check_message(
      "{% set n = namespace(x=[]) %}{% for i in range(5000) %}{% set n.x = [n.x] %}{% endfor %}",
      AT(65) "this value is nested more than 1000 levels deep");
  /* Doubling a string 40 times ends at the limit of bytes, not of memory. */
  check_message(
      "{% set n = namespace(s='ab') %}{% for i in range(40) %}{% set n.s = n.s + n.s %}{% endfor "
      "%}",
      AT(73) "the template writes more than 268435456 bytes of text");
}

/* ---- JSON ---- */

static void check_json(const char *text, size_t offset, const char *message) {
  tsr_arena *arena = tsr_arena_new();
  tsr_jinja_value v;
  tsr_json_fault fault = {0};
  CHECK(!tsr_jinja_read_json(arena, text, strlen(text), &v, &fault));
  CHECK_INT(fault.offset, offset);
  CHECK_STR(fault.message, message);
  tsr_arena_free(arena);
}

/* The values of members are read if their keys are wanted; a list's objects are read whole. */
static void check_members(const char *text, const char *want) {
  tsr_arena *arena = tsr_arena_new();
  tsr_jinja_value v;
  tsr_json_fault fault;
  tsr_text printed = {0};
  CHECK(tsr_jinja_read_members(
      arena, text, strlen(text), (const char *const[]){"a", "b", NULL}, &v, &fault));
  CHECK(tsr_jinja_repr(v, 0, &printed));
  CHECK_STR(printed.data, want);
  tsr_text_free(&printed);
  tsr_arena_free(arena);
}

static void test_json(void) {
  check_members(
      "{\"c\": [{\"a\": 9223372036854775808}], \"b\": {\"c\": 1}, \"a\": [{\"d\": 2}]}",
      "{'b': {'c': 1}, 'a': [{'d': 2}]}");
  check_members("[{\"c\": 1}, {\"d\": {\"a\": 2}}]", "[{'c': 1}, {'d': {'a': 2}}]");
  check_json(
      "{\"a\": 1,\n \"b\": 9223372036854775808}", 15, "an integer should be in [-2^63, 2^63)");
  check_json("{\"a\": 01}", 6, "a number begins with 0");
  check_json("{\"a\": 1, \"a\": 2}", 9, "key 'a' stands twice");
}

static void test_generation(void) {
  tsr_arena *arena = tsr_arena_new();
  tsr_diags *diags = tsr_diags_new(arena);
  static const char with[] = "{% if x %}{%- generation -%}a{%- endgeneration -%}{% endif %}";
  static const char without[] = "{% raw %}{% generation %}{% endraw %}";
  tsr_jinja_template *of;
  CHECK(tsr_jinja_parse(arena, "a", with, sizeof with - 1, &of, diags));
  CHECK(tsr_jinja_has_generation(of));
  CHECK(tsr_jinja_parse(arena, "b", without, sizeof without - 1, &of, diags));
  CHECK(!tsr_jinja_has_generation(of));
  tsr_arena_free(arena);
}

int main(int count, char **arguments) {
  CHECK_INT(count, 2);
  if (count == 2) test_cases(arguments[1]);
  test_parse_errors();
  test_render_errors();
  test_operand_errors();
  test_argument_errors();
  test_counted_work();
  test_many_keys();
  test_limits();
  test_json();
  test_generation();
  return check_done("jinja.render");
}
