// Package hll counts distinct integers approximately, by HyperLogLog++ (Heule, Nunkesser and Hall, "HyperLogLog in Practice", EDBT 2013).
// A sketch has the form of Google's ZetaSketch library (github.com/google/zetasketch, its aggregator.proto and hllplus-unique.proto), which BigQuery
// reads and writes: HLL_COUNT.EXTRACT, MERGE and INIT.
//
// # Sketch
//
// A sketch is a protocol buffer, AggregatorStateProto:
//
//	field 1    type of aggregator: 112, HyperLogLog++
//	field 2    number of values that were added, also repeated ones
//	field 3    version of the encoding: 2
//	field 4    type of the values: 8, uint64, which ZetaSketch's library writes for Java's Long. It rejects 4, int64.
//	           Both are accepted here, as they are hashed alike
//	field 112  HyperLogLogPlusUniqueStateProto:
//	    field 2  number of sparse values, absent if 0
//	    field 3  precision p: 15
//	    field 4  sparse precision sp: 20
//	    field 5  normal form: one byte for each of 2^p registers
//	    field 6  sparse form: sparse values in ascending order, each as the uvarint of its difference from
//	             the one before, which of the first one is 0
//
// Precisions are those of BigQuery's default. A sketch of another precision, version or type is rejected. So is one that is longer than
// BytesMax, or whose data has no sketch's form: nothing is allocated for it. Unknown fields are skipped.
//
// The hash of a value is ZetaSketch's Fingerprint2011 of its 8 bytes, little-endian. In the normal form the first p bits of the hash are the number of a
// register, and the register is the largest rho of its hashes: the number of leading zeros among the other 64-p bits, and 1. A register that no hash has is 0.
//
// A sparse value has the first sp bits of a hash, its index. If the last sp-p bits of the index are not all 0, they determine rho, and the index is the
// value. Otherwise the value has the first p bits and rho', which is rho of the 64-sp bits after the index:
//
//	0 | index (20 bits, below a zero bit)
//	1 | first 15 bits of the index | rho' (6 bits)
//
// The flag is bit 21. Of values with one index, a sketch has that with the largest rho'.
//
// # Example
//
// The sketch of the value 1, whose hash begins with 000010111001000110010:
//
//	08 70  10 01  18 02  20 08  82 07 0b          type 112, 1 value, version 2, uint64, 11 bytes follow
//	       10 01  18 0f  20 14  32 03 96 a3 2e    1 sparse value, p = 15, sp = 20, the value 758166
//
// # Differences from ZetaSketch
//
// A merge of sketches has the same bytes in any order, as folds of operands must. So a sketch becomes normal when its sparse form, computed with all rho'
// as 0, has three quarters of the bytes of the registers. This length never shrinks when values are added, while that of the form itself, by
// which ZetaSketch decides, may: a larger rho' can shorten the next difference. The two differ by a few bytes. The number of values stops at 2^63-1.
//
// Estimates of a sparse sketch are ZetaSketch's, by linear counting. Those of a normal one are by the estimator of Ertl ("New cardinality estimation
// algorithms for HyperLogLog sketches", arXiv:1702.01284), which needs no tables of empirical bias. The standard error of both is 0.57%.
//
// testdata/vectors.txt is the output of testdata/Vectors.java with the library's version 0.1.0: of 40 sketches by up to 3,000,000 values and 36 merges, all bytes
// are equal, and estimates differ by at most 0.30%.
package hll
