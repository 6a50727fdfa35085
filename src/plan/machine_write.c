// SPDX-License-Identifier: Apache-2.0
/* A machine as YAML, and as a few lines for people. */
#include "plan/machine.h"
#include "plan/machine_units.h"
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <strings.h>

/* The character at *at, which moves behind it. libyaml has let nothing but UTF-8 in. */
static uint32_t next_character(const char **at) {
  unsigned char first = (unsigned char)*(*at)++;
  int more = first < 0xc0 ? 0 : first < 0xe0 ? 1 : first < 0xf0 ? 2 : 3;
  uint32_t c = more ? first & (0x3fu >> more) : first;
  for (; more && **at; more--) c = c << 6 | ((unsigned char)*(*at)++ & 0x3f);
  return c;
}

/* Line breaks, controls and what YAML allows as an escape only. */
static bool needs_escape(uint32_t c) {
  return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x2028 || c == 0x2029 || c == 0xfeff ||
         c == 0xfffe || c == 0xffff;
}

/* Names as they are, any other text in double quotes. */
static void write_text(const char *value, tsr_text *text) {
  static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  static const char others[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
  bool is_word = *value && strchr(letters, *value) && !value[strspn(value, others)];
  if (is_word && strcasecmp(value, "null")) {
    tsr_text_add(text, "%s", value);
    return;
  }
  tsr_text_add(text, "\"");
  while (*value) {
    const char *from = value;
    uint32_t c = next_character(&value);
    if (c == '"' || c == '\\') tsr_text_add(text, "\\%c", (int)c);
    else if (needs_escape(c)) tsr_text_add(text, "\\u%04" PRIx32, c);
    else tsr_text_add_bytes(text, from, (size_t)(value - from));
  }
  tsr_text_add(text, "\"");
}

/* "key: value", behind a comma where it is not the first of its map. */
static void
write_pair(const char *key, tsr_quantity kind, double value, bool first, tsr_text *text) {
  tsr_text_add(text, "%s%s: ", first ? "" : ", ", key);
  tsr_quantity_print(kind, value, text);
}

static void write_device(const tsr_machine *m, tsr_text *text) {
  tsr_text_add(text, "device:\n  ");
  write_pair("memory", TSR_QUANTITY_BYTES, (double)m->memory, true, text);
  tsr_text_add(text, "\n  ");
  write_pair("memory_bandwidth", TSR_QUANTITY_RATE, m->memory_bandwidth, true, text);
  tsr_text_add(text, "\n  flops: {");
  for (int t = 0; t < TSR_MACHINE_DTYPES; t++)
    if (m->flops[t])
      write_pair(tsr_machine_dtype_name(t), TSR_QUANTITY_FLOPS, m->flops[t], t == 0, text);
  tsr_text_add(text, "}\n  ");
  write_pair("overhead", TSR_QUANTITY_SECONDS, m->overhead, true, text);
  if (m->host_bandwidth) tsr_text_add(text, "\n  ");
  if (m->host_bandwidth)
    write_pair("host_bandwidth", TSR_QUANTITY_RATE, m->host_bandwidth, true, text);
  if (m->threads) tsr_text_add(text, "\n  threads: %d", m->threads);
  tsr_text_add(text, "\n  efficiency: {");
  write_pair("products", TSR_QUANTITY_FRACTION, m->efficiency_products, true, text);
  write_pair("attention", TSR_QUANTITY_FRACTION, m->efficiency_attention, false, text);
  write_pair("memory", TSR_QUANTITY_FRACTION, m->efficiency_memory, false, text);
  tsr_text_add(text, "}\n");
}

static void write_link(const tsr_machine_link *link, tsr_text *text) {
  tsr_text_add(text, "- {name: ");
  write_text(link->name, text);
  if (link->devices) tsr_text_add(text, ", devices: %lld", (long long)link->devices);
  write_pair("bandwidth", TSR_QUANTITY_RATE, link->bandwidth, false, text);
  write_pair("latency", TSR_QUANTITY_SECONDS, link->latency, false, text);
  write_pair("efficiency", TSR_QUANTITY_FRACTION, link->efficiency, false, text);
  if (link->within_host) tsr_text_add(text, ", within_host: true");
  tsr_text_add(text, "}\n");
}

static void write_rate(const tsr_machine_rate *rate, tsr_text *text) {
  bool typed = rate->dtype != TSR_MACHINE_EVERY_DTYPE;
  tsr_text_add(
      text, "  %s%s%s: {", rate->op, typed ? "." : "",
      typed ? tsr_machine_dtype_name(rate->dtype) : "");
  bool first = true;
  if (rate->flops) write_pair("flops", TSR_QUANTITY_FLOPS, rate->flops, first, text), first = false;
  if (rate->bytes) write_pair("bytes", TSR_QUANTITY_RATE, rate->bytes, first, text), first = false;
  if (rate->call) write_pair("call", TSR_QUANTITY_SECONDS, rate->call, first, text), first = false;
  if (rate->overhead >= 0)
    write_pair("overhead", TSR_QUANTITY_SECONDS, rate->overhead, first, text);
  tsr_text_add(text, "}\n");
}

void tsr_machine_write(const tsr_machine *m, tsr_text *text) {
  tsr_text_add(text, "name: ");
  write_text(m->name, text);
  if (*m->doc) {
    tsr_text_add(text, "\ndoc: ");
    write_text(m->doc, text);
  }
  if (m->has_nccl) tsr_text_add(text, "\ntransport: nccl");
  tsr_text_add(text, "\n");
  write_device(m, text);
  if (m->links_count) tsr_text_add(text, "links:\n");
  for (int l = 0; l < m->links_count; l++) write_link(&m->links[l], text);
  if (m->rates_count) tsr_text_add(text, "rates:\n");
  for (int i = 0; i < m->rates_count; i++) write_rate(&m->rates[i], text);
}

/* ---- for people ---- */

static void print_link(const tsr_machine_link *link, tsr_text *text) {
  tsr_text_add(text, "  link        %s: ", link->name);
  if (link->devices) tsr_text_add(text, "%s devices, ", tsr_text_count(link->devices).text);
  else tsr_text_add(text, "any number of devices, ");
  tsr_quantity_print(TSR_QUANTITY_RATE, link->bandwidth, text);
  tsr_text_add(text, " each way, ");
  tsr_quantity_print(TSR_QUANTITY_SECONDS, link->latency, text);
  tsr_text_add(text, ", efficiency %.4g\n", link->efficiency);
}

void tsr_machine_print(const tsr_machine *m, tsr_text *text) {
  tsr_text_add(text, "machine %s%s%s\n", m->name, *m->doc ? ": " : "", m->doc);
  tsr_text_add(text, "  memory      %s, ", tsr_text_bytes(m->memory).text);
  tsr_quantity_print(TSR_QUANTITY_RATE, m->memory_bandwidth, text);
  tsr_text_add(text, "\n  compute     ");
  for (int t = 0; t < TSR_MACHINE_DTYPES; t++) {
    if (!m->flops[t]) continue;
    tsr_text_add(text, "%s%s ", t ? ", " : "", tsr_machine_dtype_name(t));
    tsr_quantity_print(TSR_QUANTITY_FLOPS, m->flops[t], text);
  }
  tsr_text_add(
      text, "\n  efficiency  products %.4g, attention %.4g, memory %.4g; a task's overhead ",
      m->efficiency_products, m->efficiency_attention, m->efficiency_memory);
  tsr_quantity_print(TSR_QUANTITY_SECONDS, m->overhead, text);
  tsr_text_add(text, "\n");
  if (m->threads)
    tsr_text_add(
        text, "  host        its %d thread%s the work of all ranks, one task after another\n",
        m->threads, m->threads == 1 ? " does" : "s do");
  for (int l = 0; l < m->links_count; l++) print_link(&m->links[l], text);
  if (!m->links_count) tsr_text_add(text, "  links       none: one device alone\n");
  if (m->rates_count)
    tsr_text_add(
        text, "  rates       measured of %d %s\n", m->rates_count,
        m->rates_count == 1 ? "op" : "ops and types");
}
