package bigtableadmin

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/gateway/errcode"
	"github.com/steledb/stele/gateway/names"
)

// The periods of ListHotTablets.
const (
	hotPeriod    = 24 * time.Hour
	hotPeriodMax = 48 * time.Hour
)

// ListHotTablets implements adminpb.BigtableInstanceAdminServer. It lists the tablets of the tables that the caller may read as a whole. A page
// token is the number of tablets on the pages before.
func (s *instances) ListHotTablets(ctx context.Context, req *adminpb.ListHotTabletsRequest) (*adminpb.ListHotTabletsResponse, error) {
	in, cluster, err := names.ParseCluster(req.GetParent())
	if err != nil {
		return nil, errcode.Convert(err, errcode.Repeatable)
	}
	if cluster != clusterID && cluster != "-" {
		return nil, status.Errorf(codes.NotFound, "cluster %q not found", req.Parent)
	}
	from, to, err := pageOf(req, api.HotTabletsMax)
	if err != nil {
		return nil, err
	}
	ask, err := hotRequest(req, time.Now())
	if err != nil {
		return nil, err
	}
	t, _, err := s.cfg.Open(ctx)
	var list *client.HotTabletList
	if err == nil {
		list, err = t.Hot(ctx, ask)
	}
	if err != nil {
		return nil, errcode.Convert(err, errcode.Repeatable)
	}
	answer := &adminpb.ListHotTabletsResponse{}
	for i := from; i < min(to, len(list.Tablets)); i++ {
		answer.HotTablets = append(answer.HotTablets, hotTablet(in, list, &list.Tablets[i]))
	}
	if to < len(list.Tablets) {
		answer.NextPageToken = strconv.Itoa(to)
	}
	return answer, nil
}

// pageOf returns which of most results a page has. The error is a status.
func pageOf(req interface {
	GetPageSize() int32
	GetPageToken() string
}, most int) (from, to int, err error) {
	if req.GetPageSize() < 0 {
		return 0, 0, errcode.Invalid("page_size must not be negative")
	}
	if text := req.GetPageToken(); text != "" {
		if from, err = strconv.Atoi(text); err != nil || from < 0 || from > most {
			return 0, 0, errcode.Invalid("page_token %.100q is not valid", text)
		}
	}
	if to = most; req.GetPageSize() > 0 {
		to = min(most, from+int(req.GetPageSize()))
	}
	return from, to, nil
}

// hotRequest converts the period of a request. The error is a status.
func hotRequest(req *adminpb.ListHotTabletsRequest, now time.Time) (*client.HotTabletsRequest, error) {
	if req.StartTime != nil && !req.StartTime.IsValid() || req.EndTime != nil && !req.EndTime.IsValid() {
		return nil, errcode.Invalid("start_time and end_time must be valid timestamps")
	}
	end := now
	if req.EndTime != nil && req.EndTime.AsTime().Before(now) {
		end = req.EndTime.AsTime()
	}
	start := end.Add(-hotPeriod)
	if req.StartTime != nil {
		start = req.StartTime.AsTime()
	}
	switch {
	case !start.Before(end):
		return nil, errcode.Invalid("start_time must be before end_time, and not in the future")
	case end.Sub(start) > hotPeriodMax:
		return nil, errcode.Invalid("the time from start_time to end_time must be at most %v", hotPeriodMax)
	case now.Sub(start) > api.KeyHeatSinceMax:
		return nil, errcode.Invalid("start_time must be at most %v ago", api.KeyHeatSinceMax)
	}
	ask := &client.HotTabletsRequest{Since: max(end.Sub(start), time.Millisecond), Most: api.HotTabletsMax}
	if end != now {
		ask.UntilMS = end.UnixMilli()
	}
	return ask, nil
}

// hotTablet describes a tablet. Its first row is the least one above the end of the tablet below.
func hotTablet(in names.Instance, list *client.HotTabletList, t *client.HotTablet) *adminpb.HotTablet {
	h := &adminpb.HotTablet{
		Name: fmt.Sprintf("%s/hotTablets/%d-%x", in.Cluster(clusterID), t.TableID, t.End), TableName: in.Table(t.Table).String(),
		StartTime: timestamppb.New(time.UnixMilli(list.StartMS)), EndTime: timestamppb.New(time.UnixMilli(list.EndMS)), EndKey: keyText(t.End),
		NodeCpuUsagePercent: float32(100 * list.Share(t)),
	}
	if len(t.Start) > 0 {
		h.StartKey = keyText(t.Start) + "\x00"
	}
	return h
}

// keyText returns a key as UTF-8. Bytes that are not are escaped as \xNN.
func keyText(key []byte) string {
	var text strings.Builder
	for len(key) > 0 {
		r, n := utf8.DecodeRune(key)
		if r == utf8.RuneError && n == 1 {
			fmt.Fprintf(&text, `\x%02x`, key[0])
		} else {
			text.Write(key[:n])
		}
		key = key[n:]
	}
	return text.String()
}
