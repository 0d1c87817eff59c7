package bigtable

import (
	"context"
	"encoding/base64"
	"hash/fnv"
	"strconv"
	"time"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/steledb/stele/gateway/names"
)

// Headers of answers. The metrics of clients have labels from them.
const (
	headerLocation = "x-goog-ext-425905942-bin" // a ResponseParams message
	headerTiming   = "server-timing"            // how long the call took, in ms
	headerPeer     = "bigtable-peer-info"       // base64 of a PeerInfo message
)

// Peer describes the node to clients.
type Peer struct {
	// Node is the id of the node.
	Node string
	// Zone is its failure domain. Empty means names.NoZone.
	Zone string
}

// peer is a Peer as messages and headers have it. It is never changed.
type peer struct {
	id             int64 // of the node
	zone           string
	cluster        *bigtablepb.ClusterInformation
	clusterInfo    []byte // cluster, encoded
	location, info string // values of headers
}

func describePeer(p Peer) *peer {
	zone, cluster := p.Zone, names.ClusterID
	if zone == "" {
		zone = names.NoZone
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(p.Node)) // its error is always nil
	id := int64(h.Sum64() >> 1)
	about := &bigtablepb.ClusterInformation{ClusterId: cluster, ZoneId: zone}
	return &peer{id: id, zone: zone, cluster: about, clusterInfo: encode(about),
		location: string(encode(&bigtablepb.ResponseParams{ZoneId: &zone, ClusterId: &cluster, AfeId: &id})),
		info: base64.RawURLEncoding.EncodeToString(encode(&bigtablepb.PeerInfo{ApplicationFrontendId: id, ApplicationFrontendSubzone: zone,
			TransportType: bigtablepb.PeerInfo_TRANSPORT_TYPE_SESSION_CLOUD_PATH}))}
}

// encode encodes a message whose text is valid UTF-8.
func encode(m proto.Message) []byte {
	b, err := proto.Marshal(m)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return b
}

// headers returns those of an answer to a call that took so long.
func (p *peer) headers(ctx context.Context, took time.Duration) metadata.MD {
	ms := strconv.FormatFloat(took.Seconds()*1000, 'f', 3, 64)
	md := metadata.MD{headerLocation: {p.location}, headerTiming: {"gfet4t7; dur=" + ms}}
	if featuresOf(ctx).GetPeerInfo() {
		md[headerPeer] = []string{p.info}
	}
	return md
}

// Stream adds the headers of the answers to a call, when the first is sent, and counts the call for its app profile. It is a
// grpc.StreamServerInterceptor.
func (s *Service) Stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	h := &headed{ServerStream: stream, peer: s.peer, began: time.Now(), counts: s.profiles.nowhere}
	h.ctx = context.WithValue(stream.Context(), headedKey{}, h)
	err := handler(srv, h)
	h.head()
	if i, ok := methodIndex[info.FullMethod]; ok {
		took := time.Since(h.began)
		if lasts(countedMethods[i]) {
			took = 0
		}
		h.counts.add(i, took, err)
	}
	return err
}

type headedKey struct{}

// headed is a stream that sends headers.
type headed struct {
	grpc.ServerStream
	ctx    context.Context
	peer   *peer
	began  time.Time
	sent   bool
	counts *counts // of the app profile, once the request was read
}

// Context implements grpc.ServerStream.
func (h *headed) Context() context.Context { return h.ctx }

// SendMsg implements grpc.ServerStream.
func (h *headed) SendMsg(m any) error {
	h.head()
	return h.ServerStream.SendMsg(m)
}

func (h *headed) head() {
	if h.sent {
		return
	}
	h.sent = true
	_ = h.SetHeader(h.peer.headers(h.Context(), time.Since(h.began))) // clients do without it
}
