/* A model's digest without reading it every time: kept in the cache folder by the device, inode,
 * size, mtime and ctime of each of its files, any of which changes when the content does. */
#ifndef AS_DIGEST_H
#define AS_DIGEST_H

#include "engine/model.h"

/* as_model_digest(model) as 16 hex digits, from the cache where it is known. */
void as_model_digest_cached(const struct as_model *model, char digest[17]);

#endif
