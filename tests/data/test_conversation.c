// SPDX-License-Identifier: Apache-2.0
/* Conversations: the shapes of lines, built-in templates, trained spans, places of tokens, and the
 * mistakes of a file. */
#include "data/conversation.h"
#include "data/chat_template_builtin.h"
#include "tests/check.h"
#include "tests/data/bpe_json.h"
#include "tests/printed.h"
#include <stdlib.h>
#include <unistd.h>

static char folder[] = "/tmp/tessera_conversation_XXXXXX";

static const char *write_file(tsr_arena *arena, const char *name, const char *text) {
  const char *path = tsr_arena_printf(arena, "%s/%s", folder, name);
  FILE *file = fopen(path, "w");
  CHECK(file && fputs(text, file) >= 0 && !fclose(file));
  return path;
}

/* Bytes are their own tokens; these special ones follow, from 256 on. */
static tsr_tokenizer
tokenizer_with(tsr_arena *arena, const char *const *special, int count, const char *normalizer) {
  tsr_diags *diags = tsr_diags_new(arena);
  tsr_text added = {0};
  tsr_subword *bpe = NULL;
  for (int i = 0; i < count; i++)
    tsr_text_add(
        &added,
        "%s{\"id\":%d,\"content\":\"%s\",\"special\":true,\"single_word\":false,\"lstrip\":false,"
        "\"rstrip\":false,\"normalized\":false}",
        i ? "," : "", 256 + i, special[i]);
  bool ok = bpe_json_parse(
      arena, &(bpe_json){.added = added.data, .normalizer = normalizer}, &bpe, diags);
  tsr_diags_print(diags, stderr);
  CHECK(ok);
  tsr_text_free(&added);
  return tsr_tokenizer_subword(bpe);
}

/* The text with «» around what is trained. */
static char *marked(tsr_arena *arena, const tsr_conversation *c) {
  tsr_text text = {0};
  bool inside = false;
  for (int64_t i = 0; i <= c->count; i++) {
    bool trained = i < c->count && c->trained[i];
    if (trained != inside) tsr_text_add(&text, trained ? "«" : "»");
    inside = trained;
    if (i < c->count)
      tsr_text_add_bytes(&text, c->text + c->begins[i], (size_t)(c->begins[i + 1] - c->begins[i]));
  }
  char *copy = tsr_arena_strdup(arena, text.data ? text.data : "");
  tsr_text_free(&text);
  return copy;
}

typedef struct {
  const char *template; /* NULL: the built-in one */
  tsr_train_on train_on;
  const char *const *special; /* NULL: the byte tokenizer */
  int special_count;
} setting;

/* The line's text with its marks, or what the diagnostics print. */
static char *read_line(tsr_arena *arena, const setting *s, const char *line) {
  tsr_diags *diags = tsr_diags_new(arena);
  tsr_conversation_format format = {.tokenizer = tsr_tokenizer_byte(), .train_on = s->train_on};
  if (s->special) format.tokenizer = tokenizer_with(arena, s->special, s->special_count, NULL);
  tsr_text_file file = {"chat.jsonl", line, strlen(line)};
  const char *path = s->template ? write_file(arena, "chat.jinja", s->template) : NULL;
  tsr_conversation c;
  bool ok = tsr_chat_template_open(
      arena, NULL, path, &format.tokenizer, TSR_NOWHERE, &format.template, diags);
  ok = ok && tsr_conversation_read(arena, &format, NULL, &file, 0, file.length, &c, diags);
  if (!ok) return printed_diags(arena, diags);
  CHECK_INT(c.begins[0], 0);
  CHECK_INT(c.begins[c.count], c.length);
  return marked(arena, &c);
}

static void check(const setting *s, const char *line, const char *want) {
  tsr_arena *arena = tsr_arena_new();
  CHECK_STR(read_line(arena, s, line), want);
  tsr_arena_free(arena);
}

#define M(role, content) "{\"role\": \"" role "\", \"content\": \"" content "\"}"

/* ---- built-in templates ---- */

static const char *const ml[] = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
static const char *const llama[] = {
    "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"};
static const char *const mistral[] = {"<s>", "</s>", "[INST]", "[/INST]"};
static const char talk[] =
    "{\"messages\": [" M("system", "Be brief.") ", " M("user", " Who?\\n") ", " M(
        "assistant", "I.") ", " M("user", "\\u00dc?") ", " M("assistant", "You. ") "]}";

static void test_builtin(void) {
  setting s = {.special = ml, .special_count = 3};
  check(
      &s, talk,
      "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n Who?\n<|im_end|>\n"
      "<|im_start|>assistant\n«I.<|im_end|>»\n<|im_start|>user\nÜ?<|im_end|>\n"
      "<|im_start|>assistant\n«You. <|im_end|>»\n");
  s.train_on = TSR_TRAIN_ON_LAST_ASSISTANT;
  check(
      &s, talk,
      "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n Who?\n<|im_end|>\n"
      "<|im_start|>assistant\nI.<|im_end|>\n<|im_start|>user\nÜ?<|im_end|>\n"
      "<|im_start|>assistant\n«You. <|im_end|>»\n");
  s = (setting){.special = llama, .special_count = 4};
  check(
      &s, talk,
      "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
      "<|start_header_id|>user<|end_header_id|>\n\nWho?<|eot_id|>"
      "<|start_header_id|>assistant<|end_header_id|>\n\n«I.<|eot_id|>»"
      "<|start_header_id|>user<|end_header_id|>\n\nÜ?<|eot_id|>"
      "<|start_header_id|>assistant<|end_header_id|>\n\n«You.<|eot_id|>»");
  s = (setting){.special = mistral, .special_count = 4};
  check(&s, talk, "<s>[INST] Who?\n[/INST]«I.</s>»[INST]Be brief.\n\nÜ?[/INST]«You. </s>»");
  s.train_on = TSR_TRAIN_ON_ALL;
  check(&s, "{\"messages\": [" M("user", "a") "]}", "«<s>[INST]a[/INST]»");
  check(
      &s,
      "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"a\"},"
      " {\"type\": \"text\", \"text\": \"b\"}]}]}",
      "«<s>[INST]ab[/INST]»");
}

/* Special tokens are one token each, everything else its bytes. */
static void test_stops(void) {
  tsr_arena *arena = tsr_arena_new();
  int32_t stops[TSR_CHAT_STOPS_MAX];
  tsr_tokenizer t = tokenizer_with(arena, ml, 3, NULL), bytes = tsr_tokenizer_byte();
  CHECK_INT(tsr_chat_stops(&t, stops), 2);
  CHECK(stops[0] == 256 && stops[1] == 258);
  CHECK_INT(tsr_chat_stops(&bytes, stops), 0);
  CHECK(tsr_chat_template_builtin(&t));
  CHECK(!tsr_chat_template_builtin(&bytes));
  tsr_arena_free(arena);
}

/* ---- spans ---- */

#define PLAIN                                                                                      \
  "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}"                            \
  "{% if add_generation_prompt %}<assistant>{% endif %}"
/* Reasoning is rendered in the last turn alone, as Qwen3 does; that turn always has its marks. */
#define REASONING                                                                                  \
  "{% for m in messages %}<{{ m.role }}>"                                                          \
  "{% set c = m.content.split('</think>')[-1].lstrip('\\n') %}"                                    \
  "{% if m.role == 'assistant' and loop.last %}<think>{{ m.reasoning_content }}</think>{% endif "  \
  "%}"                                                                                             \
  "{{ c }}{% for t in m.tool_calls or [] %}{call {{ t.function.name }}}{% endfor %}</>"            \
  "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
/* The prompt opens reasoning, which no turn has, as DeepSeek-R1 does. */
#define OPENED                                                                                     \
  "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}"                            \
  "{% if add_generation_prompt %}<assistant><think>\n{% endif %}"
/* The system message stands in front of the last message of the user, as Mistral does. */
#define MOVED                                                                                      \
  "{% set last = messages | map(attribute='role') | list | length - 1 %}"                          \
  "{% set ns = namespace(user=-1) %}{% for m in messages %}{% if m.role == 'user' %}"              \
  "{% set ns.user = loop.index0 %}{% endif %}{% endfor %}"                                         \
  "{% for m in messages %}{% if m.role == 'user' %}[I]"                                            \
  "{% if loop.index0 == ns.user and messages[0].role == 'system' %}{{ messages[0].content }};"     \
  "{% endif %}{{ m.content }}[/I]{% elif m.role == 'assistant' %} {{ m.content }}</s>{% endif %}"  \
  "{% endfor %}"

static const char two_turns[] = "{\"messages\": [" M("user", "a") ", " M("assistant", "b") ", " M(
    "user", "c") ", " M("assistant", "d") "]}";

static void test_spans(void) {
  setting s = {.template = PLAIN};
  check(&s, two_turns, "<user>a</><assistant>«b</>»<user>c</><assistant>«d</>»");
  s.train_on = TSR_TRAIN_ON_LAST_ASSISTANT;
  check(&s, two_turns, "<user>a</><assistant>b</><user>c</><assistant>«d</>»");
  s.train_on = TSR_TRAIN_ON_ALL;
  check(&s, two_turns, "«<user>a</><assistant>b</><user>c</><assistant>d</>»");
  s = (setting){.template = REASONING};
  check(&s, two_turns, "<user>a</><assistant>«b</>»<user>c</><assistant>«<think></think>d</>»");
  check(
      &s,
      "{\"messages\": [" M("user", "a") ", " M("assistant", "x</think>\\n\\nb") ", " M(
          "user", "b") ", {\"role\": \"assistant\", \"reasoning\": \"r\", \"content\": \"b\"}]}",
      "<user>a</><assistant>«b</>»<user>b</><assistant>«<think>r</think>b</>»");
  check(
      &s,
      "{\"messages\": [" M("user", "a") ", {\"role\": \"assistant\", \"content\": \"\", "
                                        "\"tool_calls\": [{\"function\": {\"name\": \"f\"}}]}, " M(
                                            "tool", "t") ", " M("assistant", "f") "]}",
      "<user>a</><assistant>«{call f}</>»<tool>t</><assistant>«<think></think>f</>»");
  s = (setting){.template = OPENED};
  check(&s, two_turns, "<user>a</><assistant>«b</>»<user>c</><assistant>«d</>»");
  check(
      &s, "{\"messages\": [" M("user", "a") ", " M("assistant", "<thin") "]}",
      "<user>a</><assistant>«<thin</>»");
  s = (setting){.template = MOVED};
  check(
      &s,
      "{\"messages\": [" M("system", "S") ", " M("user", "a") ", " M("assistant", "b") ", " M(
          "user", "c") ", " M("assistant", "d") "]}",
      "[I]a[/I]« b</s>»[I]S;c[/I]« d</s>»");
}

/* End tokens that the template writes behind a turn only if another message follows. */
static void test_later_ends(void) {
#define ENDED(end)                                                                                 \
  "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% if m.role == 'user' %}</>"               \
  "{% elif not loop.last %}" end "{% endif %}{% endfor %}"                                         \
  "{% if add_generation_prompt %}<assistant>{% endif %}"
  setting s = {.template = ENDED("{{ eos_token }}"), .special = ml, .special_count = 3};
  check(&s, two_turns, "<user>a</><assistant>«b<|endoftext|>»<user>c</><assistant>«d»");
  s.template = ENDED("{{ '\\n<|im_end|>\\n' }}");
  check(&s, two_turns, "<user>a</><assistant>«b\n<|im_end|>»\n<user>c</><assistant>«d»");
  s.template = ENDED("<|im_end|>{{ eos_token }}");
  check(&s, two_turns, "<user>a</><assistant>«b<|im_end|><|endoftext|>»<user>c</><assistant>«d»");
  s.template = ENDED("{{ '\\n' }}");
  check(&s, two_turns, "<user>a</><assistant>«b»\n<user>c</><assistant>«d»");
  /* The next message writes the end, or begins with a token that would be one. */
  s.template = "{% for m in messages %}{{ '' if loop.first else '<|im_end|>' }}<{{ m.role }}>"
               "{{ m.content }}{% endfor %}{% if add_generation_prompt %}<|im_end|><assistant>"
               "{% endif %}";
  check(&s, two_turns, "<user>a<|im_end|><assistant>«b<|im_end|>»<user>c<|im_end|><assistant>«d»");
  s.template = "{% for m in messages %}<|endoftext|><{{ m.role }}>{{ m.content }}<|im_end|>"
               "{% endfor %}{% if add_generation_prompt %}<|endoftext|><assistant>{% endif %}";
  check(
      &s, two_turns,
      "<|endoftext|><user>a<|im_end|><|endoftext|><assistant>«b<|im_end|>»<|endoftext|><user>c"
      "<|im_end|><|endoftext|><assistant>«d<|im_end|>»");
}

static void test_refused_spans(void) {
  static const char refused[] = "chat.jsonl:1:1: error: message 2: the chat template changes the "
                                "assistant's text in a longer "
                                "conversation, and what is trained cannot be determined\n";
  tsr_arena *arena = tsr_arena_new();
  static const char *const templates[] = {
      /* The number of messages stands in front. */
      "{{ messages | length }}{% for m in messages %}{{ m.content | upper }}{% endfor %}",
      /* Each text is written twice. */
      "{{ messages | length }}{% for m in messages %}{{ m.content }}{{ m.content }}{% endfor %}",
      /* The text of a turn grows with the conversation. */
      "{% for m in messages %}<{{ m.role }}>{{ ('xyz' ~ m.content)[:loop.length + 2] }}"
      "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}",
      /* Text stands behind a turn that is not the last, and it is no token that ends one. */
      "{% for m in messages %}<{{ m.content }}{{ '' if loop.last else '>' }}{% endfor %}",
      /* No loop over the messages writes them. */
      "{% for i in range(messages | length) %}<{{ messages[i].content }}>{% endfor %}",
      /* An earlier turn ends in another way. */
      "{% for m in messages %}<{{ m.content }}{{ '>>' if loop.last else '>' }}{% endfor %}"};
  for (size_t i = 0; i < sizeof templates / sizeof *templates; i++) {
    setting s = {.template = templates[i]};
    const char *got = read_line(arena, &s, two_turns);
    CHECK_AT(!strncmp(got, refused, sizeof refused - 1), "%s: %s", templates[i], got);
  }
  tsr_arena_free(arena);
}

static void test_marks(void) {
  setting s = {
      .template = "{% for m in messages %}{% if m.role == 'assistant' %}A{% generation %}"
                  "{{ m.content }}{% endgeneration %}B{% generation %}.{% endgeneration %}\n"
                  "{% else %}{{ m.content }}{% endif %}{% endfor %}"};
  check(&s, two_turns, "aA«b»B«.»cA«d»B«.»");
  s.train_on = TSR_TRAIN_ON_LAST_ASSISTANT;
  check(&s, two_turns, "aAbB.cA«d»B«.»");
  check(
      &s, "{\"messages\": [" M("user", "x") "]}",
      "chat.jsonl:1:1: error: there is no message of the assistant to train on\n"
      "    1 | {\"messages\": [{\"role\": \"user\", \"content\": \"x\"}]}\n"
      "      | ^\n");
}

/* ---- shapes ---- */

static void test_shapes(void) {
  setting s = {.special = ml, .special_count = 3};
  check(
      &s,
      "{\"prompt\": [" M("user", "a") ", " M("assistant", "b") ", " M(
          "user", "c") "], "
                       "\"completion\": [" M("assistant", "d") "]}",
      "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n<|im_start|>user\nc"
      "<|im_end|>\n<|im_start|>assistant\n«d<|im_end|>»\n");
  s = (setting){.template = PLAIN};
  check(
      &s, "{\"instruction\": \"Add.\", \"input\": \"1 2\", \"output\": \"3\", \"id\": 7}",
      "<user>Add.\n\n1 2</><assistant>«3</>»");
  check(
      &s, "{\"instruction\": \"Hi\", \"input\": \"\", \"output\": \"Yo\", \"system\": \"S\"}",
      "<system>S</><user>Hi</><assistant>«Yo</>»");
  check(
      &s,
      "{\"conversations\": [{\"from\": \"system\", \"value\": \"S\"}, {\"from\": \"human\", "
      "\"value\": \"a\"}, {\"from\": \"gpt\", \"value\": \"b\"}]}",
      "<system>S</><user>a</><assistant>«b</>»");
  check(
      &s,
      "{\"prompt\": [" M("user", "a") "], \"completion\": [" M("assistant", "b") ", " M(
          "user", "c") ", " M("assistant", "d") "]}",
      "<user>a</><assistant>«b</><user>c</><assistant>d</>»");
  s.train_on = TSR_TRAIN_ON_LAST_ASSISTANT;
  check(
      &s,
      "{\"prompt\": [" M("user", "a") "], \"completion\": [" M("assistant", "b") ", " M(
          "user", "c") ", " M("assistant", "d") "]}",
      "<user>a</><assistant>b</><user>c</><assistant>«d</>»");
  /* Other keys are ignored, whatever they have. */
  s = (setting){.template = PLAIN};
  check(
      &s,
      "{\"id\": 123456789012345678901234567890, \"meta\": [{\"n\": -9223372036854775809}], "
      "\"messages\": [" M("user", "a") ", " M("assistant", "b") "], \"x\": {\"messages\": 1e99}}",
      "<user>a</><assistant>«b</>»");
  s = (setting){.special = ml, .special_count = 3};
  check(&s, "{\"prompt\": \"1 + 1 =\", \"completion\": \" 2\"}", "1 + 1 =« 2<|endoftext|>»");
  check(&s, "{\"prompt\": \"\", \"completion\": \"x<|endoftext|>\"}", "«x<|endoftext|>»");
  check(&s, "{\"question\": \"1 + 1?\", \"answer\": \"2\"}", "1 + 1?\n«2<|endoftext|>»");
  check(
      &s,
      "{\"question\": \"other\", \"prompt\": \"1 + 1 =\", \"completion\": \" 2\", \"answer\": 2}",
      "1 + 1 =« 2<|endoftext|>»");
  s.train_on = TSR_TRAIN_ON_ALL;
  check(&s, "{\"prompt\": \"é\", \"completion\": \"x\"}", "«éx<|endoftext|>»");
  s = (setting){
      .template = "{{ tools[0].name }}{{ x }}{% for m in messages %}{{ m.content }}{% endfor %}"};
  check(
      &s,
      "{\"messages\": [" M("user", "a") ", " M(
          "assistant",
          "b") "], \"tools\": "
               "\"[{\\\"name\\\": \\\"f\\\"}]\", \"chat_template_kwargs\": {\"x\": 1.0}}",
      "f1.0a«b»");
}

/* ---- mistakes ---- */

static void check_mistake(const char *line, const char *want) {
  tsr_arena *arena = tsr_arena_new();
  setting s = {.template = PLAIN};
  tsr_text text = {0};
  const char *quote = strchr(read_line(arena, &s, line), '\n'), *got = read_line(arena, &s, line);
  CHECK(quote);
  for (const char *at = got; *at;) { /* without the quoted line */
    const char *end = strchr(at, '\n');
    if (strncmp(at, "    1 |", 7) != 0 && strncmp(at, "      |", 7) != 0)
      tsr_text_add_bytes(&text, at, (size_t)(end - at + 1));
    at = end + 1;
  }
  CHECK_STR(text.data, want);
  tsr_text_free(&text);
  tsr_arena_free(arena);
}

static void test_mistakes(void) {
#define E "chat.jsonl:1:1: error: "
  check_mistake("[1]", E "a line should be an object, not a list\n");
  check_mistake(
      "{\"messages\": ", "chat.jsonl:1:14: error: expected a value, not the end of the text\n");
  check_mistake(
      "{\"text\": \"x\"}", E
      "this line has no conversation\n"
      "      = a line has 'messages', or 'prompt' and 'completion', or 'instruction' and 'output', "
      "or 'conversations', or 'question' and 'answer'\n");
  check_mistake(
      "{\"messages\": [], \"instruction\": \"x\"}",
      E "both 'messages' and 'instruction' are given; one of them is the conversation\n");
  check_mistake(
      "{\"id\": 1234567890123456789012, \"messages\": [{\"x\": 9223372036854775808}]}",
      "chat.jsonl:1:51: error: an integer should be in [-2^63, 2^63)\n");
  check_mistake("{\"messages\": []}", E "'messages' is empty\n");
  check_mistake("{\"messages\": 7}", E "'messages' should be a list of messages, not an integer\n");
  check_mistake(
      "{\"messages\": [7, {\"role\": \"user\"}, {\"content\": \"x\"}, {\"role\": \"user\", "
      "\"content\": 7}, {\"role\": \"user\", \"content\": [{\"type\": \"image\"}, 1]}], \"tools\": "
      "1}",
      E "key 'tools' should be a list, not an integer\n" E
        "messages, message 1 should be an object with 'role' and 'content', not an integer\n" E
        "messages, message 2: 'content' is missing\n" E "messages, message 3: 'role' is missing\n" E
        "messages, message 4: 'content' should be a string or a list of parts, not an integer\n" E
        "messages, message 5: content of type 'image' is not supported, only 'text'\n" E
        "messages, message 5: a part of 'content' should be an object with 'type' and 'text'\n");
  check_mistake(
      "{\"prompt\": \"x\"}",
      E "this line has no conversation\n      = a line has "
        "'messages', or 'prompt' and 'completion', or 'instruction' and 'output', or "
        "'conversations', or 'question' and 'answer'\n");
  check_mistake("{\"question\": \"x\"}", E "key 'answer' is missing\n");
  check_mistake("{\"completion\": \"x\"}", E "key 'prompt' is missing\n");
  check_mistake(
      "{\"prompt\": \"x\", \"completion\": []}",
      E "'prompt' and 'completion' should both be strings or both be lists of messages\n");
  check_mistake("{\"instruction\": \"x\"}", E "key 'output' is missing\n");
  check_mistake(
      "{\"conversations\": [{\"from\": \"humman\", \"value\": \"x\"}, {\"from\": \"gpt\"}]}",
      E "conversations, turn 1: unknown speaker 'humman'\n"
        "      = valid: human, user, gpt, assistant, system, tool, observation\n" E
        "conversations, turn 2 should be an object with the strings 'from' and 'value'\n");
  check_mistake(
      "{\"messages\": [" M("user", "x") "], \"tools\": \"[\"}",
      E "key 'tools' has no valid JSON: expected a value, not the end of the text\n");
}

/* The second line of a file, and a template that raises an exception. */
static void test_places(void) {
  tsr_arena *arena = tsr_arena_new();
  tsr_diags *diags = tsr_diags_new(arena);
  static const char text[] = "{\"messages\": []}\n{\"messages\": [" M("user", "x") "]}\n";
  const char *path = write_file(arena, "raise.jinja", "{{ raise_exception('no') }}");
  tsr_conversation_format format = {.tokenizer = tsr_tokenizer_byte()};
  tsr_text_file file = {"chat.jsonl", text, sizeof text - 1};
  tsr_conversation c;
  CHECK(tsr_chat_template_open(
      arena, NULL, path, &format.tokenizer, TSR_NOWHERE, &format.template, diags));
  CHECK(!tsr_conversation_read(arena, &format, NULL, &file, 17, sizeof text - 19, &c, diags));
  const char *got = printed_diags(arena, diags);
  CHECK_AT(strstr(got, "the template raises an exception: no\n"), "%s", got);
  CHECK_AT(strstr(got, "      = the conversation is at chat.jsonl:2\n"), "%s", got);
  setting none = {0};
  const char *missing = read_line(arena, &none, two_turns);
  CHECK_AT(
      strstr(
          missing, "error: the model has no chat template, and its tokenizer has no special "
                   "tokens of a format that is known"),
      "%s", missing);
  tsr_arena_free(arena);
}

/* ---- places of tokens ---- */

static void
check_begins(const tsr_tokenizer *t, const char *text, const int64_t *want, int64_t want_count) {
  tsr_arena *arena = tsr_arena_new();
  tsr_text_file file = {"text", text, strlen(text)};
  int64_t room = tsr_tokenizer_room(t, text, file.length), count = 0;
  int32_t *tokens = tsr_arena_array(arena, int32_t, room + 1);
  int64_t *begins = tsr_arena_array(arena, int64_t, room + 1);
  CHECK(tsr_tokenizer_encode_begins(t, NULL, &file, tokens, begins, &count, tsr_diags_new(arena)));
  CHECK_INT(count, want_count);
  for (int64_t i = 0; i <= count && i <= want_count; i++) CHECK_INT(begins[i], want[i]);
  tsr_arena_free(arena);
}

static void test_begins(void) {
  tsr_arena *arena = tsr_arena_new();
  tsr_tokenizer plain = tokenizer_with(arena, ml, 3, NULL),
                nfc = tokenizer_with(arena, ml, 3, "{\"type\":\"NFC\"}"),
                nfkc = tokenizer_with(arena, ml, 3, "{\"type\":\"NFKC\"}"),
                bytes = tsr_tokenizer_byte(), chars;
  tsr_text_file all = {"text", "aé", 3};
  CHECK(tsr_tokenizer_char(arena, &all, 1, &chars, tsr_diags_new(arena)));
  check_begins(&plain, "a<|im_end|>é", (const int64_t[]){0, 1, 11, 12, 13}, 4);
  check_begins(&bytes, "aé", (const int64_t[]){0, 1, 2, 3}, 3);
  check_begins(&chars, "éa", (const int64_t[]){0, 2, 3}, 2);
  /* e and a combining accent become two bytes of one character, which begins where the e is. */
  check_begins(&nfc, "<|im_end|>ae\xcc\x81z", (const int64_t[]){0, 10, 11, 11, 14, 15}, 5);
  /* One ligature becomes three letters. */
  check_begins(&nfkc, "a\xef\xac\x83z", (const int64_t[]){0, 1, 1, 1, 4, 5}, 5);
  tsr_arena_free(arena);
}

int main(void) {
  CHECK(mkdtemp(folder));
  test_builtin();
  test_stops();
  test_spans();
  test_later_ends();
  test_refused_spans();
  test_marks();
  test_shapes();
  test_mistakes();
  test_places();
  char command[256];
  snprintf(command, sizeof command, "rm -f %s/*.jinja", folder);
  CHECK(!system(command));
  test_begins();
  CHECK(!rmdir(folder));
  return check_done("data.conversation");
}
