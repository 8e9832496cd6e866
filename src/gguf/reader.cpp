#include "src/gguf/gguf.h"
