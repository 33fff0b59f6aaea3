/* FlashInfer's kernels behind plain functions, for flashinfer_peers.py --flashinfer. It is built where FlashInfer's
 * headers are (the package flashinfer-python has them in its folder data, D here; 0.7.2 with CUDA 13.0 needs
 * fastdiv.cuh of 0.5.3, for cuda::fast_mod_div came later), one object to a kernel:
 *
 *   F="-O3 -std=c++17 -use_fast_math --expt-relaxed-constexpr -DNDEBUG -DFLASHINFER_ENABLE_F16 -DFLASHINFER_ENABLE_BF16
 *      -DFLASHINFER_ENABLE_FP8_E4M3 -DFLASHINFER_ENABLE_FP8_E5M2 -gencode arch=compute_90a,code=sm_90a
 *      -Xcompiler -fPIC -I$D/include -I$D/cutlass/include -I$D/cutlass/tools/util/include"
 *   nvcc $F -DDECODE=f16 -DKV=half -c flashinfer_glue.cu -o decode_f16.o            (f8: KV=__nv_fp8_e4m3)
 *   nvcc $F -DPREFILL=n128 -DHEAD=128 -DMASK=kNone -c flashinfer_glue.cu -o n128.o      (c128: MASK=kCausal)
 *   nvcc $F -DPREFILL=f8n128 -DHEAD=128 -DMASK=kNone -DEIGHT -c flashinfer_glue.cu -o f8n128.o
 *   nvcc -shared -cudart static -o libflashinfer.so *.o
 */
#define JOINED(a, b) a##b
#define NAMED(a, b) JOINED(a, b)

#ifdef DECODE
#include <cstring>
#include <flashinfer/attention/mask.cuh>
#include <flashinfer/attention/scheduler.cuh>
#include <flashinfer/math.cuh>
#include <flashinfer/page.cuh>

#include <flashinfer/attention/default_prefill_params.cuh>
#include <flashinfer/attention/prefill.cuh>
#include <flashinfer/attention/variants.cuh>

using namespace flashinfer;

constexpr int HEAD = 128, QUERIES = 16; /* of a tile; up to 16 query heads of a head of the cache */
using Params = BatchPrefillPagedParams<half, KV, half, int32_t>;
using Variant = DefaultAttention<false, false, false, false>;

struct plan {
    PrefillPlanInfo info;
    void *floats, *integers;
};

/* How the context of a batch is split: starts and page_starts [batch + 1] on the host; the workspaces floats and
 * integers on the device, pinned as large as integers. Gives null, with a message, where it cannot. */
extern "C" void *NAMED(decode_plan_, DECODE)(void *floats, size_t float_bytes, void *integers, void *pinned,
                                             size_t integer_bytes, int *starts, int *page_starts, int batch, int heads,
                                             int kv_heads, int page) {
    try {
        plan *p = new plan;
        p->floats = floats, p->integers = integers;
        cudaError_t error = PrefillPlan<int32_t>(floats, float_bytes, integers, pinned, integer_bytes, p->info, starts,
                                                 page_starts, batch, batch, heads, kv_heads, HEAD, HEAD, page, false, 2,
                                                 -1, -1, false, 0, 0, (cudaStream_t)0, sizeof(KV));
        if (error == cudaSuccess && p->info.cta_tile_q == QUERIES) return p;
        fprintf(stderr, "decode_plan: %s, tiles of %d queries\n", cudaGetErrorString(error), (int)p->info.cta_tile_q);
    } catch (std::exception &e) {
        fprintf(stderr, "decode_plan: %s\n", e.what());
    }
    return nullptr;
}

/* q and out [batch, heads, HEAD]; keys and values [pages, page, kv_heads, HEAD] with strides of their own; starts,
 * page_starts, pages and last (tokens of each last page) on the device. */
extern "C" int NAMED(decode_run_, DECODE)(plan *plan, void *q, void *keys, void *values, int64_t *strides, int *starts,
                                          int *page_starts, int *pages, int *last, void *out, int batch, int heads,
                                          int kv_heads, int page, float scale, int early, cudaStream_t stream) {
    try {
        const PrefillPlanInfo &info = plan->info;
        auto at = [&](int64_t offset) { return GetPtrFromBaseOffset<int32_t>(plan->integers, offset); };
        Params p;
        p.q = (half *)q, p.o = (half *)out, p.q_indptr = starts;
        p.paged_kv = paged_kv_t<KV, int32_t>(kv_heads, page, HEAD, batch, QKVLayout::kNHD, (KV *)keys, (KV *)values,
                                             strides, pages, page_starts, last);
        p.num_qo_heads = heads, p.group_size = uint_fastdiv(heads / kv_heads);
        p.q_stride_n = heads * HEAD, p.q_stride_h = HEAD, p.window_left = -1, p.sm_scale = scale;
        p.request_indices = at(info.request_indices_offset);
        p.qo_tile_indices = at(info.qo_tile_indices_offset);
        p.kv_tile_indices = at(info.kv_tile_indices_offset);
        p.o_indptr = at(info.o_indptr_offset);
        p.kv_chunk_size_ptr = at(info.kv_chunk_size_ptr_offset);
        p.padded_batch_size = info.padded_batch_size, p.max_total_num_rows = info.total_num_rows;
        half *parts = nullptr;
        float *sums = nullptr;
        if (info.split_kv) {
            p.merge_indptr = at(info.merge_indptr_offset);
            parts = GetPtrFromBaseOffset<half>(plan->floats, info.v_offset);
            sums = GetPtrFromBaseOffset<float>(plan->floats, info.s_offset);
        }
        return BatchPrefillWithPagedKVCacheDispatched<true, QUERIES, HEAD, HEAD, PosEncodingMode::kNone, false,
                                                      MaskMode::kNone, Variant, Params>(p, parts, sums, early, stream);
    } catch (std::exception &e) {
        fprintf(stderr, "decode_run: %s\n", e.what());
        return -1;
    }
}
#endif

#ifdef PREFILL
#include <flashinfer/cutlass_utils.cuh>

#include <flashinfer/attention/hopper/default_params.cuh>
#include <flashinfer/attention/hopper/prefill_sm90.cuh>
#include <flashinfer/attention/hopper/variants.cuh>
#ifdef EIGHT
#include <flashinfer/attention/hopper/quantization/prefill_sm90.cuh>
#endif

using namespace flashinfer;

using Out = cutlass_dtype_t<half>;
#ifdef EIGHT
using In = cutlass_dtype_t<__nv_fp8_e4m3>;
#else
using In = Out;
#endif

/* One sequence, q [tokens, heads, HEAD], k and v [kv_tokens, kv_heads, HEAD]. scales: of f8, a factor a head. */
extern "C" int NAMED(fa3_, PREFILL)(void *q, void *k, void *v, void *out, int tokens, int kv_tokens, int heads,
                                    int kv_heads, float scale, cudaStream_t stream, float *scales) {
    SinglePrefillParams<In, In, Out, int32_t> p = {};
    p.q_ptr = (In *)q, p.k_ptr = (In *)k, p.v_ptr = (In *)v, p.o_ptr = (Out *)out;
    p.additional_params.sm_scale = scale;
    p.q_stride_n = p.o_stride_n = heads * HEAD, p.k_stride_n = p.v_stride_n = kv_heads * HEAD;
    p.q_stride_h = p.o_stride_h = p.k_stride_h = p.v_stride_h = HEAD;
    p.qo_len = tokens, p.kv_len = kv_tokens, p.num_qo_heads = heads, p.num_kv_heads = kv_heads;
    p.group_size = heads / kv_heads, p.window_left = -1, p.causal = MaskMode::MASK == MaskMode::kCausal;
#ifdef EIGHT
    p.additional_params.scale_q = p.additional_params.scale_k = p.additional_params.scale_v = scales;
    return SingleFP8PrefillWithKVCacheDispatched<HEAD, MaskMode::MASK, false, StandardFP8Attention>(p, stream);
#else
    return SinglePrefillWithKVCacheDispatched<HEAD, HEAD, MaskMode::MASK, false, StandardAttention>(p, stream);
#endif
}
#endif
