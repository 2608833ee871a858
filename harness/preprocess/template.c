#include "preprocess/template.h"

#include <openssl/evp.h>
#include <stdint.h>
#include <string.h>

#include "preprocess/utf8.h"

struct render {
    const struct as_message *messages;
    size_t count;
    bool generation;
    struct as_piece bos;
    struct as_text *out;
};

struct as_template {
    const char *name;
    void (*render)(const struct render *render, const struct as_template *self);
    const char *system; /* ChatML: put in front where the first message is no system message */
};

static void add(struct as_text *out, const char *text)
{
    as_text_add(out, text, strlen(text));
}

static void add_piece(struct as_text *out, struct as_piece piece)
{
    as_text_add(out, piece.bytes, piece.length);
}

static bool is(struct as_piece piece, const char *text)
{
    return piece.length == strlen(text) && memcmp(piece.bytes, text, piece.length) == 0;
}

static void render_chatml(const struct render *render, const struct as_template *self)
{
    struct as_text *out = render->out;
    if (self->system != NULL && render->count > 0 && !is(render->messages[0].role, "system")) {
        add(out, "<|im_start|>system\n");
        add(out, self->system);
        add(out, "<|im_end|>\n");
    }
    for (size_t i = 0; i < render->count; i++) {
        add(out, "<|im_start|>");
        add_piece(out, render->messages[i].role);
        add(out, "\n");
        add_piece(out, render->messages[i].content);
        add(out, "<|im_end|>\n");
    }
    if (render->generation)
        add(out, "<|im_start|>assistant\n");
}

/* What Python's str.strip(), and so Jinja's `trim`, takes for white space: Unicode's, and the
 * four separators from U+001C. */
static bool is_python_space(uint32_t c)
{
    return (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 ||
           c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 ||
           c == 0x202f || c == 0x205f || c == 0x3000;
}

static struct as_piece trim(struct as_piece text)
{
    const unsigned char *bytes = (const unsigned char *)text.bytes;
    size_t start = 0, end = 0, used;
    for (size_t at = 0; at < text.length; at += used) {
        as_utf8_next(bytes + at, text.length - at, &used);
        if (!is_python_space(as_utf8_code_point(bytes + at, used)))
            end = at + used;
        else if (end == 0)
            start = at + used;
    }
    return end == 0 ? (struct as_piece){text.bytes, 0}
                    : (struct as_piece){text.bytes + start, end - start};
}

static void render_llama3(const struct render *render, const struct as_template *self)
{
    (void)self;
    struct as_text *out = render->out;
    for (size_t i = 0; i < render->count; i++) {
        if (i == 0)
            add_piece(out, render->bos);
        add(out, "<|start_header_id|>");
        add_piece(out, render->messages[i].role);
        add(out, "<|end_header_id|>\n\n");
        add_piece(out, trim(render->messages[i].content));
        add(out, "<|eot_id|>");
    }
    if (render->generation)
        add(out, "<|start_header_id|>assistant<|end_header_id|>\n\n");
}

static const struct as_template templates[] = {
    {"smollm2", render_chatml,
     "You are a helpful AI assistant named SmolLM, trained by Hugging Face"},
    {"chatml", render_chatml, NULL},
    {"llama-3", render_llama3, NULL},
};

/* SHA-256 of Jinja sources; tests/golden/tokenizer/make.py has the sources. The second of a pair
 * spells its line ends as the escape \n. */
static const struct {
    const char *sha256;
    const struct as_template *chat;
} sources[] = {
    {"872be49dbb638044ad01b60388f48d469ff2980e5f0dccdc22ec907db54d0788", &templates[0]},
    {"153280e3ff55d19da1398bdb3914ee2a51b80429bfaedde11d7d216c39db80f3", &templates[1]},
    {"fcf7a096fe99a48fd9ad2b250bf9237e96e8f48bffec1c7ea4d3f225176cd40e", &templates[1]},
    {"ba03a121d097859c7b5b9cd03af99aafe95275210d2876f642ad9929a150f122", &templates[2]},
    {"4f46ecd43418f216df8c26936c60e5d04bcc81db47db5d86fbe889f64212dd4c", &templates[2]},
};

#define TEMPLATES (sizeof templates / sizeof templates[0])

const char *as_template_known(size_t index)
{
    return index < TEMPLATES ? templates[index].name : NULL;
}

const char *as_template_name(const struct as_template *chat)
{
    return chat->name;
}

static int refuse(const char *what, const char *which, struct as_error *error)
{
    struct as_text known = {0};
    for (size_t i = 0; i < TEMPLATES; i++)
        as_text_addf(&known, "%s%s", i == 0 ? "" : ", ", templates[i].name);
    int code = as_fail(error, AS_ERR_UNSUPPORTED, "%s%.100s; name one with --chat-template: %s",
                       what, which, known.failed ? "" : known.data);
    as_text_free(&known);
    return code;
}

static int by_name(const struct as_template **found, const char *name, struct as_error *error)
{
    const char *names[TEMPLATES];
    for (size_t i = 0; i < TEMPLATES; i++) {
        names[i] = templates[i].name;
        if (strcmp(names[i], name) == 0) {
            *found = &templates[i];
            return 0;
        }
    }
    const char *nearest = as_nearest(name, names, TEMPLATES);
    if (nearest != NULL)
        return as_fail(error, AS_ERR_USAGE,
                       "there is no chat template \"%.100s\"; did you mean %s?", name, nearest);
    return refuse("there is no chat template ", name, error);
}

int as_template_find(const struct as_template **found, const char *source, size_t length,
                     const char *name, struct as_error *error)
{
    *found = NULL;
    if (name != NULL)
        return by_name(found, name, error);
    if (source == NULL)
        return refuse("the model carries no chat template", "", error);
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned digest_length = 0;
    if (EVP_Digest(source, length, digest, &digest_length, EVP_sha256(), NULL) != 1)
        return as_fail(error, AS_ERR_INTERNAL, "SHA-256 of the chat template failed");
    static const char digits[] = "0123456789abcdef";
    char text[2 * EVP_MAX_MD_SIZE + 1] = "";
    for (unsigned i = 0; i < digest_length; i++) {
        text[2 * i] = digits[digest[i] >> 4];
        text[2 * i + 1] = digits[digest[i] & 15];
    }
    for (size_t i = 0; i < sizeof sources / sizeof sources[0]; i++) {
        if (strcmp(sources[i].sha256, text) == 0) {
            *found = sources[i].chat;
            return 0;
        }
    }
    return refuse("the model's chat template is not known, its SHA-256 is ", text, error);
}

static int check_text(struct as_piece text, size_t message, const char *what,
                      struct as_error *error)
{
    size_t bad = as_utf8_check(text.bytes, text.length);
    if (bad == text.length)
        return 0;
    return as_fail(error, AS_ERR_DATA,
                   "the %s of message %zu is not UTF-8: the byte 0x%02x at offset %zu starts no "
                   "character",
                   what, message, (unsigned char)text.bytes[bad], bad);
}

int as_template_render(const struct as_template *chat, const struct as_tokenizer *tokenizer,
                       const struct as_message *messages, size_t count, bool generation,
                       struct as_text *out, struct as_error *error)
{
    int code = 0;
    for (size_t i = 0; i < count && code == 0; i++) {
        code = check_text(messages[i].role, i, "role", error);
        if (code == 0)
            code = check_text(messages[i].content, i, "content", error);
    }
    if (code != 0)
        return code;
    struct render render = {
        .messages = messages, .count = count, .generation = generation, .out = out};
    if (tokenizer != NULL)
        render.bos = as_tokenizer_piece(tokenizer, as_tokenizer_bos(tokenizer));
    chat->render(&render, chat);
    return out->failed ? as_fail_memory(error, out->capacity, "a rendered chat") : 0;
}

int as_template_encode(const struct as_template *chat, const struct as_tokenizer *tokenizer,
                       struct as_encoder *encoder, const struct as_message *messages, size_t count,
                       bool generation, const int32_t **ids, size_t *id_count,
                       struct as_error *error)
{
    struct as_text text = {0};
    *ids = NULL;
    *id_count = 0;
    int code = as_template_render(chat, tokenizer, messages, count, generation, &text, error);
    if (code == 0)
        code = as_encoder_encode(encoder, text.data, text.length, AS_ENCODE_CHAT, ids, id_count,
                                 error);
    as_text_free(&text);
    return code;
}
