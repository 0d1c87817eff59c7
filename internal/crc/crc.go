package crc

import "hash/crc32"

var table = crc32.MakeTable(crc32.Castagnoli)

// Sum returns the CRC-32C of the concatenated parts.
func Sum(parts ...[]byte) uint32 {
	var c uint32
	for _, p := range parts {
		c = crc32.Update(c, table, p)
	}
	return c
}

// Update returns the CRC-32C of data with checksum c followed by p. The checksum of no data is 0.
func Update(c uint32, p []byte) uint32 { return crc32.Update(c, table, p) }
