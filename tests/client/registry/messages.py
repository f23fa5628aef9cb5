"""Protobuf classes for tests, made without a compiler: shop/order.proto imports shop/item.proto and a known file."""

from __future__ import annotations

from typing import Any

from google.protobuf import timestamp_pb2
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

STRING, INT32, MESSAGE = (
    FieldDescriptorProto.TYPE_STRING,
    FieldDescriptorProto.TYPE_INT32,
    FieldDescriptorProto.TYPE_MESSAGE,
)


def field(name: str, number: int, kind: Any, type_name: str = "") -> FieldDescriptorProto:
    optional = FieldDescriptorProto.LABEL_OPTIONAL
    return FieldDescriptorProto(name=name, number=number, type=kind, type_name=type_name or None, label=optional)


item_file = FileDescriptorProto(
    name="shop/item.proto",
    package="shop",
    syntax="proto3",
    message_type=[DescriptorProto(name="Item", field=[field("name", 1, STRING)])],
)
line = DescriptorProto(name="Line", field=[field("count", 1, INT32)])
order_file = FileDescriptorProto(
    name="shop/order.proto",
    package="shop",
    syntax="proto3",
    dependency=["shop/item.proto", "google/protobuf/timestamp.proto"],
    message_type=[
        DescriptorProto(
            name="Order",
            field=[
                field("item", 1, MESSAGE, ".shop.Item"),
                field("count", 2, INT32),
                field("at", 3, MESSAGE, ".google.protobuf.Timestamp"),
            ],
        ),
        DescriptorProto(name="Cart", field=[field("owner", 1, STRING)], nested_type=[line]),
    ],
)
pool = DescriptorPool()
pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
pool.Add(item_file)
pool.Add(order_file)


def message(name: str) -> Any:
    """The class of a message of the two files."""
    return GetMessageClass(pool.FindMessageTypeByName(name))


Item, Order, Cart, Line = message("shop.Item"), message("shop.Order"), message("shop.Cart"), message("shop.Cart.Line")
