// Package crc computes CRC-32C (Castagnoli), the one checksum of every file
// and frame that Stele writes. The CPU computes it at some 20 GB/s, so it is
// taken over everything that goes to a disk or a wire, headers included.
//
// Checksums are stored as they come: nothing here stores the checksum of bytes
// that themselves end in their own checksum, which is what LevelDB's masking
// guards against.
package crc
