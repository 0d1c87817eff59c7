// Package crc computes CRC-32C (Castagnoli), the checksum of every file and frame that Stele
// writes. The CPU computes it at about 20 GB/s, so it covers everything that goes to a disk or to
// the network, including headers.
//
// Checksums are stored unmasked. LevelDB masks them because it checksums data that ends in its own
// checksum; Stele never does.
package crc
