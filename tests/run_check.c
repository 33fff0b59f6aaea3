/* The checker of certificates: what it confirms is never contradicted by the sanitizer, whatever the
 * certificate says. Of small kernels and of mutants of them, each has its own certificate and that of the
 * kernel that it was made of; of mistakes, which a launch shows to be a race or a deadlock, each has
 * certificates that were changed in a word, too. And containers keep certificates, and of the shipped
 * programs as many kernels are confirmed as tvm-memory(7) says. */
#include "certify.h"
#include "extent_kit.h"
#include "fileio.h"
#include "generate/generate.h"
#include "prove_seeded.h"
#include "prove_shipped.h"
#include "prove_subject.h"
#include "vbc.h"

static unsigned passed, bad;
static unsigned long confirmed, changed, mutants;

static void count(bool good, const char *what) {
    passed += good;
    bad += !good;
    if (!good) printf("FAIL: %s\n", what);
}

static tvm_ir_program *assemble(const char *text) {
    tvm_ir_program *program = NULL;
    tvm_diags diags = {0};
    if (tvm_assemble_text(text, strlen(text), "t.vasm", NULL, &program, &diags) != TVM_OK)
        fprintf(stderr, "%s\n%s", diags.count ? diags.items[0].message : "", text);
    tvm_diags_free(&diags);
    return program;
}

static tvm_checked check(const tvm_ir_program *program, uint32_t kernel, const uint32_t *words, uint32_t n) {
    tvm_checked checked;
    if (tvm_check(program, kernel, words, n, &checked, NULL) != TVM_OK) abort();
    return checked;
}

static bool is_free(const tvm_checked *checked) {
    return checked->races.holds && checked->deadlocks.holds && !checked->waits_for_blocks;
}

/* What a launch shows. */
static prove_found launch(const prove_subject *s, const tvm_ir_program *program, uint32_t kernel) {
    const tvm_proof nothing = {
        .races = {.insn = TVM_NONE}, .deadlocks = {.insn = TVM_NONE}, .global = {.insn = TVM_NONE}};
    prove_found found = {.race = false};
    char *reports = NULL;
    if (prove_run_subject(s, program, kernel, &reports) && reports != NULL)
        found = prove_read_reports(program, &program->kernels[kernel], &nothing, reports);
    free(reports);
    return found;
}

static bool is_false(const tvm_checked *checked, const prove_found *found) {
    return (checked->races.holds && found->race) ||
           (checked->deadlocks.holds && !checked->waits_for_blocks && found->deadlock);
}

/* ---- programs that are changed ---- */

static bool try_mutant(const prove_subject *s, const tvm_certificate *of, const tvm_ir_program *mutant) {
    tvm_certificate own;
    if (tvm_certify(mutant, 0, &own, NULL) != TVM_OK) abort();
    tvm_checked with[2] = {check(mutant, 0, own.words, own.count), check(mutant, 0, of->words, of->count)};
    free(own.words);
    mutants++;
    confirmed += with[0].races.holds + with[1].races.holds;
    if (!with[0].races.holds && !with[0].deadlocks.holds && !with[1].races.holds && !with[1].deadlocks.holds)
        return true;
    prove_found found = launch(s, mutant, 0);
    return !is_false(&with[0], &found) && !is_false(&with[1], &found);
}

static bool mutate(const prove_subject *s, const tvm_certificate *of, unsigned every) {
    tvm_ir_program *spare = NULL;
    bool good = true;
    for (uint32_t i = 0; i < s->program->kernels[s->kernel].insn_count; i++)
        for (unsigned way = 0; way < PROVE_WAYS; way++) {
            uint64_t state = (uint64_t)i * PROVE_WAYS + way;
            bool more = generate_bits(&state) % every == 0;
            for (unsigned nth = 0; more && nth < 6; nth++) {
                tvm_ir_program *mutant = prove_mutant(s->program, s->kernel, i, way, nth, &spare, &more);
                if (mutant == NULL) continue;
                bool right = try_mutant(s, of, mutant);
                if (!right)
                    fprintf(stderr, "%s: instruction %u, %s, %u\n", s->name, i, prove_ways[way].name, nth);
                good = good && right;
                tvm_ir_program_free(mutant);
            }
        }
    tvm_ir_program_free(spare);
    return good;
}

/* ---- certificates that are changed ---- */

/* One or two words: another number, a bit, one more or less, a word of another place; or a word is left out.
 */
static uint32_t change(uint32_t *words, uint32_t n, uint64_t *state) {
    for (unsigned times = 1 + generate_bits(state) % 2; times > 0; times--) {
        uint32_t at = (uint32_t)(generate_bits(state) % n);
        switch (generate_bits(state) % 6) {
        case 0:
            words[at] = (uint32_t)(generate_bits(state) % 8);
            break;
        case 1:
            words[at] ^= UINT32_C(1) << generate_bits(state) % 32;
            break;
        case 2:
            words[at]++;
            break;
        case 3:
            words[at]--;
            break;
        case 4:
            words[at] = words[generate_bits(state) % n];
            break;
        default:
            if (n > 1 && times == 1) memmove(words + at, words + at + 1, (--n - at) * sizeof *words);
            break;
        }
    }
    return n;
}

/* Nothing that a launch shows to be wrong is confirmed. */
static bool withstands(const tvm_ir_program *program, const tvm_certificate *of, const prove_found *found,
                       unsigned times, uint64_t *state) {
    bool good = true;
    uint32_t *words = malloc((of->count + (size_t)1) * sizeof *words);
    if (words == NULL) abort();
    for (unsigned i = 0; i < times && of->count && good; i++) {
        memcpy(words, of->words, of->count * sizeof *words);
        tvm_checked checked = check(program, 0, words, change(words, of->count, state));
        good = !is_false(&checked, found);
        changed++;
    }
    free(words);
    return good;
}

/* The certificate of the right kernel, that of the mistake where there is one, and changed ones of both. */
static bool run_mistake(const seeded_kernel *of, const seeded_mistake *mistake, const tvm_certificate *right,
                        uint64_t *state) {
    char *text = seeded_text(of, mistake);
    tvm_ir_program *program = text != NULL ? assemble(text) : NULL;
    free(text);
    if (program == NULL) return false;
    prove_subject s = {.name = mistake->what, .program = program};
    prove_small_scalars(&s);
    prove_found found = launch(&s, program, 0);
    tvm_certificate own;
    if (tvm_certify(program, 0, &own, NULL) != TVM_OK) abort();
    tvm_checked one = check(program, 0, own.words, own.count),
                two = check(program, 0, right->words, right->count);
    bool good = (found.race || found.deadlock) && !is_false(&one, &found) && !is_false(&two, &found) &&
                withstands(program, right, &found, test_all() ? 1000 : 60, state) &&
                withstands(program, &own, &found, test_all() ? 1000 : 30, state);
    free(own.words);
    tvm_ir_program_free(program);
    return good;
}

static void run_seeded(void) {
    uint64_t state = 7;
    for (size_t i = 0; i < SEEDED_KERNELS; i++) {
        const seeded_kernel *of = &seeded_kernels[i];
        tvm_ir_program *program = assemble(of->text);
        tvm_certificate right;
        if (program == NULL || tvm_certify(program, 0, &right, NULL) != TVM_OK) abort();
        prove_subject s = {.name = of->what, .program = program};
        prove_small_scalars(&s);
        count(mutate(&s, &right, test_all() ? 1 : 3), of->what);
        for (const seeded_mistake *m = of->mistakes; m->what != NULL; m++)
            count(run_mistake(of, m, &right, &state), m->what);
        free(right.words);
        tvm_ir_program_free(program);
    }
}

/* ---- what the block assigns between two roles ---- */

static void run_between(void) {
    static const char text[] =
        ".vasm 7\n.kernel k(n: i32, x: global f32[n, 64])\n.warps 2\n.grid 1\n.assume n >= 1\n"
        "%s = alloc-shared f32[1, 64]\n%full = alloc-barrier [1]\n%empty = alloc-barrier [1], open\n%turns = n\n"
        "role copy warps 1 to 2\nfor %i = 0 to %turns\nwait-barrier %empty\ncopy-bulk %s, x[0, 0], barrier %full\n"
        "arrive-barrier %full\nend\nend\n%turns = %turns + MORE\nrole use warps 0 to 1\nfor %i = 0 to %turns\n"
        "wait-barrier %full\n%v = load-shared %s[0, 0], local(1, 2).spatial(1, 32)\narrive-barrier %empty\nend\nend\n"
        ".end\n";
    char with[sizeof text + 16];
    const char *at = strstr(text, "MORE");
    snprintf(with, sizeof with, "%.*s1%s", (int)(at - text), text, at + 4);
    tvm_ir_program *program = assemble(with);
    if (program == NULL) abort();
    tvm_proof proof;
    tvm_certificate certificate;
    if (tvm_prove(program, 0, &proof, NULL) != TVM_OK ||
        tvm_certify(program, 0, &certificate, NULL) != TVM_OK)
        abort();
    tvm_checked checked = check(program, 0, certificate.words, certificate.count);
    count(proof.deadlocks.verdict != TVM_PROVED, "one turn more in the second role is not proved");
    count(!checked.deadlocks.holds && checked.deadlocks.text[0],
          "one turn more in the second role is not confirmed");
    free(certificate.words);
    tvm_ir_program_free(program);
}

/* ---- containers ---- */

/* Writes and reads it; NULL: it is refused. */
static tvm_ir_program *through(const tvm_ir_program *program, size_t *size, uint8_t **bytes) {
    tvm_ir_program *read = NULL;
    if (tvm_vbc_write(program, TVM_VBC_CERTIFICATES, bytes, size, NULL) != TVM_OK) abort();
    return tvm_vbc_read(*bytes, *size, NULL, &read, NULL) == TVM_OK ? read : NULL;
}

static void run_container(void) {
    const seeded_kernel *of = &seeded_kernels[1];
    tvm_ir_program *program = assemble(of->text), *read = NULL;
    uint8_t *bytes;
    size_t size;
    uint64_t hash[2], other[2];
    if (program == NULL || tvm_vbc_hash(program, hash, NULL) != TVM_OK) abort();
    if (tvm_certify_program(&program, NULL) != TVM_OK) abort();
    tvm_ir_kernel *kernel = &program->kernels[0];
    tvm_checked before = check(program, 0, kernel->certificate, kernel->certificate_count);
    count(kernel->certificate_count > 0 && is_free(&before), "a kernel has a certificate, which is checked");
    read = through(program, &size, &bytes);
    count(read != NULL && read->kernels[0].certificate_count == kernel->certificate_count &&
              memcmp(read->kernels[0].certificate, kernel->certificate,
                     kernel->certificate_count * sizeof *kernel->certificate) == 0,
          "a container keeps it");
    count(tvm_vbc_hash(program, other, NULL) == TVM_OK && memcmp(hash, other, sizeof hash) == 0,
          "it is no part of what the program means");
    tvm_checked without = check(program, 0, NULL, 0);
    count(!without.races.holds && without.races.text[0], "without it nothing is confirmed");
    free(bytes);
    tvm_ir_program_free(read);
    kernel->certificate[kernel->certificate_count - 1] ^= 1;
    read = through(program, &size, &bytes);
    tvm_checked after = {.steps = 0};
    if (read != NULL)
        after = check(read, 0, read->kernels[0].certificate, read->kernels[0].certificate_count);
    count(read != NULL && !is_free(&after) && after.races.text[0],
          "one that is wrong is read, and confirms nothing");
    free(bytes);
    tvm_ir_program_free(read);
    tvm_ir_program_free(program);
}

/* ---- shipped programs ---- */

/* Of the shipped programs' kernels, those for tcgen05 left out, at which the prover does not look. */
typedef struct certificates {
    unsigned kernels, races, deadlocks, conditional, both;
    unsigned none;         /* that need no certificate */
    size_t bytes, longest; /* of certificates */
} certificates;

static void check_kernel(const tvm_ir_program *program, uint32_t kernel, certificates *all) {
    tvm_certificate made;
    if (tvm_certify(program, kernel, &made, NULL) != TVM_OK) abort();
    tvm_checked checked = check(program, kernel, made.words, made.count);
    size_t bytes = made.count * sizeof *made.words;
    all->kernels++;
    all->races += checked.races.holds;
    all->deadlocks += checked.deadlocks.holds && !checked.waits_for_blocks;
    all->conditional += checked.deadlocks.holds && checked.waits_for_blocks;
    all->both += is_free(&checked);
    all->none += bytes == 0;
    all->bytes += bytes;
    if (bytes > all->longest) all->longest = bytes;
    free(made.words);
}

static void check_program(const char *folder, const shipped_program *of, certificates *all) {
    tvm_ir_program *program = assemble_program(folder, of);
    count(program != NULL, of->name);
    for (uint32_t k = 0; program != NULL && k < program->kernel_count; k++)
        if (!is_for_tcgen05(tvm_string(program, program->kernels[k].name))) check_kernel(program, k, all);
    tvm_ir_program_free(program);
}

static void check_shipped(const char *top) {
    char folder[4096];
    certificates all = {.kernels = 0};
    snprintf(folder, sizeof folder, "%s/programs", top);
    for (size_t i = 0; i < PROGRAMS; i++)
        if (!is_foreign(&programs[i])) check_program(folder, &programs[i], &all);
    printf(
        "%u kernels, %u confirmed free of races, %u of deadlock, %u if other blocks do their part, %u of both\n",
        all.kernels, all.races, all.deadlocks, all.conditional, all.both);
    printf("%zu bytes of certificates, %zu the longest; %u kernels need none\n", all.bytes, all.longest,
           all.none);
    const unsigned figures[] = {all.kernels, all.races, all.deadlocks, all.conditional, all.both};
    count(manual_says(top, "certificates", figures, sizeof figures / sizeof *figures),
          "the manual's figures are those of the checker");
}

int main(void) {
    run_seeded();
    run_between();
    run_container();
    check_shipped(getenv("srcdir") ? getenv("srcdir") : ".");
    printf("%lu mutants, of which %lu were confirmed, %lu changed certificates of mistakes\n", mutants,
           confirmed, changed);
    count(confirmed > 50 && changed >= 10000, "enough is tried");
    printf("%u passed, %u failed\n", passed, bad);
    return bad == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
