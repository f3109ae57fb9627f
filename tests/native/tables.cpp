// Reads arrays of structures and of pointers; see test_structures.py.

#include "errors.h"

struct Row { ROW };
struct Table { TABLE };

extern "C" const char* forward(const Table* table) {
  return error_of([&] {
    for (int64_t at = 0; at < table->rows; ++at)
      for (int64_t i = 0; i < table->own[at].size; ++i) table->sums[at] += table->own[at].values[i];
    for (int64_t at = 0; at < table->others; ++at)
      table->sums[table->rows + at] = table->nowhere ? 0 : table->more[at] ? *table->more[at] : -1;
  });
}
