// SPDX-License-Identifier: Apache-2.0
/* Any bytes as a mesh descriptor: read, check, print; and as a message of every field type, pack.
 */
#include "mesh/mesh.h"
#include "mesh/textproto.h"
#include "all_types.pb-c.h"
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_mesh(tsr_arena *arena, const char *text, size_t size, FILE *nowhere) {
  tsr_diags *diags = tsr_diags_new(arena);
  tsr_mesh *mesh;
  if (tsr_mesh_parse(arena, "fuzz", text, size, &mesh, diags) && mesh->instances_count < 200) {
    tsr_text printed = {0};
    tsr_mesh_print(mesh, &printed);
    tsr_text_free(&printed);
  }
  tsr_diags_print(diags, nowhere);
}

static void read_all_types(tsr_arena *arena, const char *text, size_t size) {
  tsr_diags *diags = tsr_diags_new(arena);
  ProtobufCMessage *message;
  tsr_textproto_read(
      arena, "fuzz", text, size, &tsr__test__all_types__descriptor, &message, tsr_places_new(arena),
      diags);
  if (!message || tsr_diags_errors(diags)) return;
  uint8_t *packed = malloc(protobuf_c_message_get_packed_size(message) + 1);
  size_t length = protobuf_c_message_pack(message, packed);
  ProtobufCMessage *again =
      protobuf_c_message_unpack(&tsr__test__all_types__descriptor, NULL, length, packed);
  if (!again) abort(); /* what we read must be a message */
  protobuf_c_message_free_unpacked(again, NULL);
  free(packed);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static FILE *nowhere;
  if (!nowhere) nowhere = fopen("/dev/null", "w");
  if (!nowhere) abort();
  tsr_arena *arena = tsr_arena_new();
  /* A copy of exactly that size, so that a byte too far is seen. */
  char *text = malloc(size ? size : 1);
  for (size_t i = 0; i < size; i++) text[i] = (char)data[i];
  read_mesh(arena, text, size, nowhere);
  read_all_types(arena, text, size);
  free(text);
  tsr_arena_free(arena);
  return 0;
}
