package hll

// Multipliers of Fingerprint2011.
const (
	k0 = 0xa5b85c5e198ed849
	k1 = 0x8d58ac26afe12e47
	k2 = 0xc47b6e9e3a970ed3
	k3 = 0xc6a4a7935bd1e995
)

func fold47(x uint64) uint64 { return x ^ x>>47 }

// fingerprint returns the Fingerprint2011 of the 8 bytes of n, little-endian. Inputs of other lengths are hashed in other ways.
func fingerprint(n int64) uint64 {
	const seed = k0 ^ k1 ^ k2 ^ 8*k3&(1<<64-1)
	x := uint64(n)
	h := (seed ^ fold47(x*k3)*k3) * k3
	h = fold47(fold47(h)*k3) + k0
	h = fold47((h^fold47((x^h)*k3))*k3) * k3
	if h <= 1 { // reserved
		h -= 2
	}
	return h
}
