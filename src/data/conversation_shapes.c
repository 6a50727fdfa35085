// SPDX-License-Identifier: Apache-2.0
/* The shapes of a line: messages, prompt and completion, Alpaca, ShareGPT. */
#include "data/conversation_internal.h"
#include <string.h>

typedef struct {
  tsr_arena *arena;
  tsr_conversation_place *at;
  const tsr_jinja_dict *line;
  tsr_conversation_line *out;
} reader;

static bool is_text(const tsr_jinja_value *v) { return v && v->kind == TSR_JINJA_STRING; }

/* A key's value; NULL: it is missing or null. */
static const tsr_jinja_value *get(const tsr_jinja_dict *d, const char *key) {
  const tsr_jinja_value *v = tsr_jinja_get_text(d, key);
  return v && v->kind != TSR_JINJA_NONE ? v : NULL;
}

static bool
wrong_type(const reader *p, const char *key, const char *wanted, const tsr_jinja_value *v) {
  if (!v) return tsr_conversation_fail(p->at, "key '%s' is missing", key);
  return tsr_conversation_fail(
      p->at, "key '%s' should be %s, not %s", key, wanted, tsr_jinja_kind_name(v->kind));
}

/* ---- messages ---- */

bool tsr_conversation_has_role(tsr_jinja_value message, const char *role) {
  const tsr_jinja_value *v = tsr_jinja_get_text(message.dict, "role");
  return v && tsr_jinja_is_text(*v, role);
}

typedef struct {
  const char *where;
  int number; /* of the message, from 1 */
  tsr_conversation_place *at;
} message_place;

static bool check_part(const message_place *m, tsr_jinja_value part) {
  const tsr_jinja_value *type =
      part.kind == TSR_JINJA_DICT ? tsr_jinja_get_text(part.dict, "type") : NULL;
  if (!is_text(type))
    return tsr_conversation_fail(
        m->at, "%s, message %d: a part of 'content' should be an object with 'type' and 'text'",
        m->where, m->number);
  if (!tsr_jinja_is_text(*type, "text"))
    return tsr_conversation_fail(
        m->at, "%s, message %d: content of type '%.*s' is not supported, only 'text'", m->where,
        m->number, (int)type->string.length, type->string.bytes);
  return is_text(tsr_jinja_get_text(part.dict, "text")) ||
         tsr_conversation_fail(
             m->at, "%s, message %d: 'text' of a part should be a string", m->where, m->number);
}

/* A text or a list of parts; none where other keys make the message, such as tool_calls. */
static bool check_content(const message_place *m, const tsr_jinja_dict *message) {
  const tsr_jinja_value *content = get(message, "content");
  bool ok = true;
  if (!content && (get(message, "tool_calls") || get(message, "reasoning_content"))) return true;
  if (!content)
    return tsr_conversation_fail(
        m->at, "%s, message %d: 'content' is missing", m->where, m->number);
  if (content->kind == TSR_JINJA_STRING) return true;
  if (content->kind != TSR_JINJA_LIST)
    return tsr_conversation_fail(
        m->at, "%s, message %d: 'content' should be a string or a list of parts, not %s", m->where,
        m->number, tsr_jinja_kind_name(content->kind));
  for (int i = 0; i < content->list->count; i++) ok &= check_part(m, content->list->items[i]);
  return ok;
}

static bool check_message(const message_place *m, tsr_jinja_value message) {
  if (message.kind != TSR_JINJA_DICT)
    return tsr_conversation_fail(
        m->at, "%s, message %d should be an object with 'role' and 'content', not %s", m->where,
        m->number, tsr_jinja_kind_name(message.kind));
  const tsr_jinja_value *role = get(message.dict, "role"), *calls = get(message.dict, "tool_calls");
  bool ok = check_content(m, message.dict);
  if (!is_text(role) || !role->string.length)
    ok = tsr_conversation_fail(
        m->at, "%s, message %d: 'role' %s", m->where, m->number,
        role ? "should be a string" : "is missing");
  if (calls && calls->kind != TSR_JINJA_LIST)
    ok = tsr_conversation_fail(
        m->at, "%s, message %d: 'tool_calls' should be a list, not %s", m->where, m->number,
        tsr_jinja_kind_name(calls->kind));
  return ok;
}

static bool
check_messages(tsr_jinja_value messages, const char *where, tsr_conversation_place *at) {
  if (messages.kind != TSR_JINJA_LIST)
    return tsr_conversation_fail(
        at, "'%s' should be a list of messages, not %s", where, tsr_jinja_kind_name(messages.kind));
  if (!messages.list->count) return tsr_conversation_fail(at, "'%s' is empty", where);
  bool ok = true;
  for (int i = 0; i < messages.list->count; i++)
    ok &= check_message(&(message_place){where, i + 1, at}, messages.list->items[i]);
  return ok;
}

/* ---- conversations in other shapes ---- */

static void add_message(reader *p, const char *role, tsr_jinja_value content) {
  tsr_jinja_value message = tsr_jinja_new_dict(p->arena, TSR_JINJA_DICT);
  tsr_jinja_set(p->arena, message.dict, tsr_jinja_text("role"), tsr_jinja_text(role));
  tsr_jinja_set(p->arena, message.dict, tsr_jinja_text("content"), content);
  tsr_jinja_append(p->arena, p->out->chat.messages.list, message);
}

/* A key "system" is the first message. */
static bool add_system(reader *p) {
  const tsr_jinja_value *system = get(p->line, "system");
  if (system && !is_text(system)) return wrong_type(p, "system", "a string", system);
  if (system && system->string.length) add_message(p, "system", *system);
  return true;
}

static bool read_alpaca(reader *p) {
  const tsr_jinja_value *instruction = get(p->line, "instruction"), *input = get(p->line, "input"),
                        *output = get(p->line, "output");
  bool ok = add_system(p);
  if (!is_text(instruction)) ok = wrong_type(p, "instruction", "a string", instruction);
  if (!is_text(output)) ok = wrong_type(p, "output", "a string", output);
  if (input && !is_text(input)) ok = wrong_type(p, "input", "a string", input);
  if (!ok) return false;
  tsr_text user = {0};
  tsr_text_add_bytes(&user, instruction->string.bytes, (size_t)instruction->string.length);
  if (input && input->string.length) {
    tsr_text_add(&user, "\n\n");
    tsr_text_add_bytes(&user, input->string.bytes, (size_t)input->string.length);
  }
  add_message(p, "user", tsr_jinja_take(p->arena, &user));
  add_message(p, "assistant", *output);
  return true;
}

/* NULL: there is no such role. */
static const char *sharegpt_role(tsr_jinja_value from) {
  static const char *const roles[][2] = {
      {"human", "user"},    {"user", "user"}, {"gpt", "assistant"},   {"assistant", "assistant"},
      {"system", "system"}, {"tool", "tool"}, {"observation", "tool"}};
  for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
    if (tsr_jinja_is_text(from, roles[i][0])) return roles[i][1];
  return NULL;
}

static bool read_turn(reader *p, tsr_jinja_value turn, int number) {
  const tsr_jinja_value *from = NULL, *value = NULL;
  if (turn.kind == TSR_JINJA_DICT) from = get(turn.dict, "from"), value = get(turn.dict, "value");
  if (!is_text(from) || !is_text(value))
    return tsr_conversation_fail(
        p->at, "conversations, turn %d should be an object with the strings 'from' and 'value'",
        number);
  const char *role = sharegpt_role(*from);
  if (role) return add_message(p, role, *value), true;
  tsr_conversation_fail(
      p->at, "conversations, turn %d: unknown speaker '%.*s'", number, (int)from->string.length,
      from->string.bytes);
  tsr_diag_hint(p->at->diags, "valid: human, user, gpt, assistant, system, tool, observation");
  return false;
}

static bool read_sharegpt(reader *p) {
  const tsr_jinja_value *turns = get(p->line, "conversations");
  if (!turns || turns->kind != TSR_JINJA_LIST)
    return wrong_type(p, "conversations", "a list", turns);
  bool ok = add_system(p);
  for (int i = 0; i < turns->list->count; i++) ok &= read_turn(p, turns->list->items[i], i + 1);
  return ok;
}

static bool read_messages(reader *p) {
  const tsr_jinja_value *messages = get(p->line, "messages");
  if (!messages) return wrong_type(p, "messages", "a list", messages);
  p->out->chat.messages = *messages;
  return true;
}

/* Two texts, or two lists of messages. */
static bool read_completion(reader *p) {
  const tsr_jinja_value *prompt = get(p->line, "prompt"), *completion = get(p->line, "completion");
  if (!prompt || !completion) return wrong_type(p, prompt ? "completion" : "prompt", "", NULL);
  if (is_text(prompt) && is_text(completion)) {
    p->out->is_plain = true;
    p->out->prompt = prompt->string;
    p->out->completion = completion->string;
    return true;
  }
  if (is_text(prompt) || is_text(completion))
    return tsr_conversation_fail(
        p->at, "'prompt' and 'completion' should both be strings or both be lists of messages");
  bool ok = check_messages(*prompt, "prompt", p->at);
  if (!check_messages(*completion, "completion", p->at) || !ok) return false;
  p->out->prompt_count = prompt->list->count;
  for (int i = 0; i < prompt->list->count; i++)
    tsr_jinja_append(p->arena, p->out->chat.messages.list, prompt->list->items[i]);
  for (int i = 0; i < completion->list->count; i++)
    tsr_jinja_append(p->arena, p->out->chat.messages.list, completion->list->items[i]);
  return true;
}

/* GSM8K: a prompt, which ends its line, and its completion. */
static bool read_answer(reader *p) {
  const tsr_jinja_value *question = get(p->line, "question"), *answer = get(p->line, "answer");
  if (!is_text(question)) return wrong_type(p, "question", "a string", question);
  if (!is_text(answer)) return wrong_type(p, "answer", "a string", answer);
  tsr_text prompt = {0};
  tsr_text_add_bytes(&prompt, question->string.bytes, (size_t)question->string.length);
  tsr_text_add(&prompt, "\n");
  p->out->is_plain = true;
  p->out->prompt = tsr_jinja_take(p->arena, &prompt).string;
  p->out->completion = answer->string;
  return true;
}

/* ---- the line ---- */

const char *const tsr_conversation_keys[] = {"messages", "tools",       "chat_template_kwargs",
                                             "prompt",   "completion",  "conversations",
                                             "system",   "instruction", "input",
                                             "output",   "question",    "answer",
                                             NULL};

/* A value that may be written as JSON in a string. */
static bool read_embedded(
    reader *p, const char *key, tsr_jinja_kind kind, const char *wanted, tsr_jinja_value *ret) {
  const tsr_jinja_value *v = get(p->line, key);
  tsr_json_fault fault;
  *ret = tsr_jinja_none();
  if (!v || (is_text(v) && !v->string.length)) return true;
  *ret = *v;
  if (is_text(v) &&
      !tsr_jinja_read_json(p->arena, v->string.bytes, (size_t)v->string.length, ret, &fault))
    return tsr_conversation_fail(p->at, "key '%s' has no valid JSON: %s", key, fault.message);
  if (ret->kind == kind || ret->kind == TSR_JINJA_NONE) return true;
  return wrong_type(p, key, wanted, ret);
}

/* By the keys that make the shape; one of its keys tells it. Lines of another shape may have a
 * question besides. */
static const struct {
  const char *key;
  bool (*read)(reader *p);
} shapes[] = {
    {"messages", read_messages},
    {"completion", read_completion},
    {"conversations", read_sharegpt},
    {"instruction", read_alpaca},
    {"question", read_answer}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

bool tsr_conversation_parse(
    tsr_arena *arena, tsr_jinja_value line, tsr_conversation_place *at,
    tsr_conversation_line *ret_line) {
  static const char known[] =
      "a line has 'messages', or 'prompt' and 'completion', or 'instruction' and 'output', or "
      "'conversations', or 'question' and 'answer'";
  *ret_line = (tsr_conversation_line){0};
  if (line.kind != TSR_JINJA_DICT)
    return tsr_conversation_fail(
        at, "a line should be an object, not %s", tsr_jinja_kind_name(line.kind));
  reader p = {arena, at, line.dict, ret_line};
  int shape = -1;
  for (int i = 0; i < SHAPES; i++) {
    if (!get(line.dict, shapes[i].key)) continue;
    if (shape >= 0 && shapes[i].read == read_answer) continue;
    if (shape >= 0)
      return tsr_conversation_fail(
          at, "both '%s' and '%s' are given; one of them is the conversation", shapes[shape].key,
          shapes[i].key);
    shape = i;
  }
  if (shape < 0) {
    tsr_conversation_fail(at, "this line has no conversation");
    tsr_diag_hint(at->diags, "%s", known);
    return false;
  }
  tsr_chat *chat = &ret_line->chat;
  chat->messages = tsr_jinja_new_list(arena, TSR_JINJA_LIST);
  bool ok = read_embedded(&p, "tools", TSR_JINJA_LIST, "a list", &chat->tools);
  ok &= read_embedded(&p, "chat_template_kwargs", TSR_JINJA_DICT, "an object", &chat->extra);
  if (!shapes[shape].read(&p)) return false;
  return (ret_line->is_plain || check_messages(chat->messages, shapes[shape].key, at)) && ok;
}
