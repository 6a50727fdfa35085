// SPDX-License-Identifier: Apache-2.0
#include "pictures/pictures.h"
#include "base/file_read.h"
#include "base/new_file.h"
#include "pictures/svg.h"
#include <errno.h>

typedef struct {
  const char *file;
  void (*draw)(tsr_arena *arena, const tsr_report *report, tsr_text *svg);
} picture;

static const picture pictures[] = {
    {"memory.svg", tsr_picture_memory},
    {"mesh.svg", tsr_picture_mesh},
    {"pipeline.svg", tsr_picture_pipeline},
    {"communication.svg", tsr_picture_communication}};
enum { PICTURES = sizeof pictures / sizeof *pictures };
_Static_assert((int)PICTURES <= (int)TSR_NEW_FILES_MAX, "they are committed together");

static bool draw_into(
    tsr_arena *arena, const tsr_report *report, const picture *p, tsr_new_file *file,
    tsr_diags *diags) {
  tsr_text svg = {0};
  p->draw(arena, report, &svg);
  bool ok = tsr_new_file_write(file, svg.data, svg.length, diags);
  tsr_text_free(&svg);
  return ok;
}

bool tsr_pictures_write(
    tsr_arena *arena, const tsr_report *report, const char *folder, tsr_diags *diags) {
  const char *paths[PICTURES];
  tsr_new_file files[PICTURES], *all[PICTURES];
  for (int i = 0; i < PICTURES; i++) {
    paths[i] = tsr_path_join(arena, folder, pictures[i].file);
    if (!tsr_file_check_replaced(paths[i], TSR_SVG_BEGIN, "SVG picture of tessera-train", diags))
      return false;
  }
  if (!tsr_new_folder(folder))
    return tsr_file_cannot("make the folder", folder, errno, TSR_NOWHERE, diags);
  bool ok = true;
  int opened = 0;
  for (; opened < PICTURES && ok; opened++) {
    all[opened] = &files[opened];
    ok = tsr_new_file_open(paths[opened], all[opened], diags) &&
         draw_into(arena, report, &pictures[opened], all[opened], diags);
  }
  ok = ok && tsr_new_files_commit(all, PICTURES, diags);
  for (int i = 0; i < opened; i++) tsr_new_file_drop(all[i]);
  return ok;
}
