package bigtableadmin

import (
	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"

	"github.com/steledb/stele/gateway/errcode"
	"github.com/steledb/stele/table"
)

// aggregateOf converts the value type of a family. Errors are statuses.
func aggregateOf(t *adminpb.Type) (table.Aggregate, error) {
	if t == nil {
		return table.AggregateNone, nil
	}
	a := t.GetAggregateType()
	if a == nil {
		return 0, errcode.Unimplemented("Only aggregates are supported as value types of column families.")
	}
	if a.GetAggregator() == nil {
		return 0, errcode.Invalid("value_type.aggregate_type has no aggregator")
	}
	input := a.GetInputType().GetInt64Type()
	if input == nil && a.GetHllppUniqueCount() != nil {
		return 0, errcode.Unimplemented("Of the inputs of unique counts, int64 is supported.")
	}
	if input == nil {
		return 0, errcode.Invalid("value_type.aggregate_type.input_type must be int64_type")
	}
	if input.GetEncoding().GetOrderedCodeBytes() != nil {
		return 0, errcode.Unimplemented("Of the encodings of int64, big_endian_bytes is supported.")
	}
	switch a.GetAggregator().(type) {
	case *adminpb.Type_Aggregate_Sum_:
		return table.AggregateSum, nil
	case *adminpb.Type_Aggregate_Min_:
		return table.AggregateMin, nil
	case *adminpb.Type_Aggregate_Max_:
		return table.AggregateMax, nil
	case *adminpb.Type_Aggregate_HllppUniqueCount:
		return table.AggregateHLL, nil
	}
	return 0, errcode.Unimplemented("The aggregator of value_type is not supported.")
}

// valueTypeOf returns the value type of a family with an aggregate; nil without one.
func valueTypeOf(a table.Aggregate) *adminpb.Type {
	t := &adminpb.Type_Aggregate{InputType: integerType(), StateType: integerType()}
	switch a {
	case table.AggregateSum:
		t.Aggregator = &adminpb.Type_Aggregate_Sum_{Sum: &adminpb.Type_Aggregate_Sum{}}
	case table.AggregateMin:
		t.Aggregator = &adminpb.Type_Aggregate_Min_{Min: &adminpb.Type_Aggregate_Min{}}
	case table.AggregateMax:
		t.Aggregator = &adminpb.Type_Aggregate_Max_{Max: &adminpb.Type_Aggregate_Max{}}
	case table.AggregateHLL:
		t.StateType = &adminpb.Type{Kind: &adminpb.Type_BytesType{BytesType: &adminpb.Type_Bytes{
			Encoding: &adminpb.Type_Bytes_Encoding{Encoding: &adminpb.Type_Bytes_Encoding_Raw_{Raw: &adminpb.Type_Bytes_Encoding_Raw{}}},
		}}}
		t.Aggregator = &adminpb.Type_Aggregate_HllppUniqueCount{HllppUniqueCount: &adminpb.Type_Aggregate_HyperLogLogPlusPlusUniqueCount{}}
	default:
		return nil
	}
	return &adminpb.Type{Kind: &adminpb.Type_AggregateType{AggregateType: t}}
}

func integerType() *adminpb.Type {
	encoding := &adminpb.Type_Int64_Encoding{Encoding: &adminpb.Type_Int64_Encoding_BigEndianBytes_{BigEndianBytes: &adminpb.Type_Int64_Encoding_BigEndianBytes{}}}
	return &adminpb.Type{Kind: &adminpb.Type_Int64Type{Int64Type: &adminpb.Type_Int64{Encoding: encoding}}}
}
