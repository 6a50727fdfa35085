// SPDX-License-Identifier: Apache-2.0
/* Where each field of a message stands in its file, for diagnostics. */
#include "mesh/textproto_internal.h"
#include <assert.h>
#include <string.h>

/* An open-addressing table from message to record; capacity is a power of two, at most half full.
 */
struct tsr_places {
  tsr_arena *arena;
  tsr_record **slots;
  size_t capacity, count;
};

tsr_places *tsr_places_new(tsr_arena *arena) {
  tsr_places *places = tsr_arena_alloc(arena, sizeof *places);
  *places = (tsr_places){
      .arena = arena, .slots = tsr_arena_array(arena, tsr_record *, 64), .capacity = 64};
  return places;
}

static tsr_record **slot_find(const tsr_places *places, const void *message) {
  uint64_t hash = (uint64_t)(uintptr_t)message * 0x9e3779b97f4a7c15u;
  size_t mask = places->capacity - 1, at = (size_t)(hash >> 32) & mask;
  while (places->slots[at] && places->slots[at]->message != message) at = (at + 1) & mask;
  return &places->slots[at];
}

static void places_double(tsr_places *places) {
  tsr_places bigger = *places;
  bigger.capacity *= 2;
  bigger.slots = tsr_arena_array(places->arena, tsr_record *, bigger.capacity);
  for (size_t i = 0; i < places->capacity; i++)
    if (places->slots[i]) *slot_find(&bigger, places->slots[i]->message) = places->slots[i];
  *places = bigger;
}

tsr_record *tsr_places_add(tsr_places *places, const ProtobufCMessage *message, int fields) {
  if (places->count * 2 >= places->capacity) places_double(places);
  tsr_record *record = tsr_arena_alloc(places->arena, sizeof *record);
  record->message = message;
  record->fields = tsr_arena_array(places->arena, tsr_field_record, fields ? fields : 1);
  *slot_find(places, message) = record;
  places->count++;
  return record;
}

tsr_location
tsr_places_find(const tsr_places *places, const void *message, const char *field, size_t index) {
  const tsr_record *record = *slot_find(places, message);
  assert(record);
  const ProtobufCMessageDescriptor *d = record->message->descriptor;
  for (unsigned i = 0; field && i < d->n_fields; i++) {
    if (strcmp(d->fields[i].name, field)) continue;
    const tsr_field_record *values = &record->fields[i];
    return index < (size_t)values->count ? values->places[index] : record->location;
  }
  assert(!field);
  return record->location;
}

bool tsr_places_is_damaged(const tsr_places *places, const void *message) {
  const tsr_record *record = *slot_find(places, message);
  assert(record);
  return record->is_damaged;
}

const char *tsr_record_path(tsr_arena *arena, const tsr_record *record) {
  if (!record->field) return record->message->descriptor->short_name;
  const char *path = record->field->name;
  if (record->field->label == PROTOBUF_C_LABEL_REPEATED)
    path = tsr_arena_printf(arena, "%s[%d]", path, record->index);
  if (!record->parent->field) return path;
  return tsr_arena_printf(arena, "%s.%s", tsr_record_path(arena, record->parent), path);
}
