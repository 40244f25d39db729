//! The site over HTTP. Every process has these routes; which of them answers does not matter.
//!
//! Ids are text in the answers: JavaScript's numbers have 53 bits.

use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{get, post, put};
use axum::{Extension, Json, Router};
use metrics_exporter_prometheus::PrometheusHandle;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::watch;
use tracing::Instrument;

use crate::check_ins::Day;
use crate::error::Error;
use crate::feed::Seen;
use crate::nearby::Place;
use crate::sale::{self, Answer};
use crate::shop_cache::Shop;
use crate::sign_in::{self, User, extend_session};
use crate::site::Site;
use crate::{sale_fenced, sale_locked, sale_stream};

/// Entries of a page of a feed.
const PAGE: u32 = 10;

/// `ended` turns true when this process is about to end.
pub(crate) fn router(
    site: Site,
    metrics: PrometheusHandle,
    ended: watch::Receiver<bool>,
) -> Router {
    let pages = Router::new()
        .route("/", get(async || Html(include_str!("page.html"))))
        .route("/code", post(ask_for_code))
        .route("/session", post(sign_in).delete(sign_out))
        .route("/me", get(async |User(me): User| me.to_string()))
        .route("/shops/{id}", get(shop).put(rename))
        .route("/shops/{id}/reviews", post(review))
        .route("/nearby/{longitude}/{latitude}/{page}", get(nearby))
        .route("/sales", get(sales))
        .route("/sales/{way}/orders", post(buy))
        .route("/sales/fenced/orders/mine", axum::routing::delete(cancel))
        .route("/reviews/{id}", get(read_review))
        .route("/reviews/{id}/like", post(like))
        .route("/follows/{user}", put(follow).delete(unfollow))
        .route("/follows/{user}/common", get(in_common))
        .route("/feed/{seen}", get(feed))
        .route("/check-ins", post(check_in))
        .route("/locks", get(locks))
        // Named, or the layer would not be around it.
        .fallback(async || (StatusCode::NOT_FOUND, "no such page"))
        .layer(from_fn_with_state(site.clone(), extend_session));
    // Asked by machines every few seconds: they have no session, and no traces.
    let ending = ended.clone();
    let operators = Router::new()
        .route("/ready", get(async move |site| ready(site, &ending).await))
        .route("/metrics", get(async move || metrics.render()));
    pages
        .layer(from_fn(traced))
        .merge(operators)
        .layer(from_fn_with_state(ended, say_goodbye))
        .with_state(site)
}

/// A span for each request, named by its route: the spans of its locks, by their templates, are in it.
async fn traced(request: Request, next: Next) -> Response {
    let route = request.extensions().get::<axum::extract::MatchedPath>();
    let route = route.map_or("none", |route| route.as_str());
    let span = tracing::debug_span!("request", method = %request.method(), route);
    next.run(request).instrument(span).await
}

/// Tells clients of a process that ends to open their next connection elsewhere.
async fn say_goodbye(
    State(ended): State<watch::Receiver<bool>>,
    request: Request,
    next: Next,
) -> Response {
    let mut response = next.run(request).await;
    if *ended.borrow() {
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(header::CONNECTION, close);
    }
    response
}

/// Whether requests are worth sending here: locks can be had, on the server that has the rest, too.
async fn ready(State(site): State<Site>, ended: &watch::Receiver<bool>) -> (StatusCode, String) {
    match site.locks.health().await.error {
        _ if *ended.borrow() => (StatusCode::SERVICE_UNAVAILABLE, "ending".to_owned()),
        None => (StatusCode::OK, "ready".to_owned()),
        Some(why) => (StatusCode::SERVICE_UNAVAILABLE, why),
    }
}

#[derive(Deserialize)]
struct Phone {
    phone: String,
}

async fn ask_for_code(State(site): State<Site>, Json(ask): Json<Phone>) -> Result<(), Error> {
    let code = site.sign_in.new_code(&ask.phone).await?;
    // Stands in for the message to the phone.
    println!("the code for {} is {code}", ask.phone);
    Ok(())
}

#[derive(Deserialize)]
struct Code {
    phone: String,
    code: String,
}

async fn sign_in(
    State(site): State<Site>,
    Json(Code { phone, code }): Json<Code>,
) -> Result<impl IntoResponse, Error> {
    let token = site.sign_in.sign_in(&phone, &code).await?;
    // Behind TLS, `Secure` as well.
    let cookie = format!("session={token}; Path=/; HttpOnly; SameSite=Lax");
    Ok((StatusCode::CREATED, [(header::SET_COOKIE, cookie)]))
}

async fn sign_out(State(site): State<Site>, headers: HeaderMap) -> Result<StatusCode, Error> {
    if let Some(token) = sign_in::token(&headers) {
        site.sign_in.sign_out(token).await?;
    }
    Ok(StatusCode::NO_CONTENT)
}

async fn shop(
    State(site): State<Site>,
    Path(id): Path<i64>,
    user: Option<Extension<User>>,
) -> Result<Json<Value>, Error> {
    let shop = site.shops.get_popular(id).await?;
    let shop = shop.ok_or(Error::Refused(StatusCode::NOT_FOUND, "no such shop"))?;
    let visitor = user.map_or("anonymous".to_owned(), |user| user.0.0.to_string());
    site.visitors.visit(id, &visitor).await?;
    let (visitors, views) = site.visitors.count(id).await?;
    let page = json!({"id": shop.id, "name": shop.name, "visitors": visitors, "views": views});
    Ok(Json(page))
}

#[derive(Deserialize)]
struct Name {
    name: String,
}

async fn rename(
    State(site): State<Site>,
    _: User,
    Path(id): Path<i64>,
    Json(Name { name }): Json<Name>,
) -> Result<StatusCode, Error> {
    if site.shops.get(id).await?.is_none() {
        return Err(Error::Refused(StatusCode::NOT_FOUND, "no such shop"));
    }
    let deletion = site.shops.write(Shop { id, name }).await?;
    tokio::spawn(async move {
        if let Ok(Err(error)) = deletion.await {
            tracing::error!("shop {id} may be old in the cache for a while: {error}");
        }
    });
    Ok(StatusCode::NO_CONTENT)
}

async fn nearby(
    State(site): State<Site>,
    Path((longitude, latitude, page)): Path<(f64, f64, usize)>,
) -> Result<Json<Value>, Error> {
    let at = Place {
        longitude,
        latitude,
    };
    let mut shops = vec![];
    for (id, km) in site.nearby.page(at, page).await? {
        let name = site.shops.get_popular(id).await?.map(|shop| shop.name);
        shops.push(json!({"id": id, "name": name, "km": km}));
    }
    Ok(Json(shops.into()))
}

async fn sales(State(site): State<Site>) -> Result<Json<Value>, Error> {
    let ways = [sale_locked::SALE, sale_fenced::SALE, sale_stream::SALE];
    let stock = site
        .database
        .call(move |it| ways.map(|way| sale::stock(it, way)).into_iter().collect());
    let stock: Vec<i64> = stock.await?;
    let mut sales: Vec<Value> = ways
        .iter()
        .zip(stock)
        .map(|(way, stock)| json!({"way": way, "stock": stock}))
        .collect();
    let (left, unwritten) = site.stream_sale.left().await?;
    sales[2]["stock"] = left.into();
    sales[2]["unwritten"] = unwritten.into();
    Ok(Json(sales.into()))
}

async fn buy(
    State(site): State<Site>,
    User(me): User,
    Path(way): Path<String>,
) -> Result<(StatusCode, Json<Value>), Error> {
    let (answer, done) = match way.as_str() {
        sale_locked::SALE => (site.locked_sale.buy(me).await?, StatusCode::CREATED),
        sale_fenced::SALE => (site.fenced_sale.buy(me).await?, StatusCode::CREATED),
        // The database has it a moment later.
        sale_stream::SALE => (site.stream_sale.buy(me).await?, StatusCode::ACCEPTED),
        _ => return Err(Error::Refused(StatusCode::NOT_FOUND, "no such sale")),
    };
    match answer {
        Answer::Ordered(id) => Ok((done, Json(json!({"order": id.to_string()})))),
        Answer::AlreadyOrdered => Err(Error::Refused(StatusCode::CONFLICT, "one for each user")),
        Answer::SoldOut => Err(Error::Refused(StatusCode::GONE, "sold out")),
    }
}

async fn cancel(State(site): State<Site>, User(me): User) -> Result<StatusCode, Error> {
    match site.fenced_sale.cancel(me).await? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(Error::Refused(StatusCode::NOT_FOUND, "you have no order")),
    }
}

#[derive(Deserialize)]
struct NewReview {
    text: String,
}

async fn review(
    State(site): State<Site>,
    User(me): User,
    Path(shop): Path<i64>,
    Json(NewReview { text }): Json<NewReview>,
) -> Result<(StatusCode, String), Error> {
    if site.shops.get(shop).await?.is_none() {
        return Err(Error::Refused(StatusCode::NOT_FOUND, "no such shop"));
    }
    let id = site.reviews.write(shop, me, text).await?;
    Ok((StatusCode::CREATED, id.to_string()))
}

async fn shown(site: &Site, id: i64) -> Result<Value, Error> {
    let review = site.reviews.read(id).await?;
    let review = review.ok_or(Error::Refused(StatusCode::NOT_FOUND, "no such review"))?;
    let first = site.likes.first_five(id).await?;
    Ok(json!({
        "id": id.to_string(),
        "shop": review.shop,
        "author": review.author.to_string(),
        "text": review.text,
        "likes": site.likes.count(id).await?,
        "first": first.iter().map(i64::to_string).collect::<Vec<_>>(),
    }))
}

async fn read_review(State(site): State<Site>, Path(id): Path<i64>) -> Result<Json<Value>, Error> {
    Ok(Json(shown(&site, id).await?))
}

async fn like(
    State(site): State<Site>,
    User(me): User,
    Path(id): Path<i64>,
) -> Result<Json<Value>, Error> {
    let liked = site.likes.click(id, me).await?;
    Ok(Json(
        json!({"liked": liked, "likes": site.likes.count(id).await?}),
    ))
}

async fn follow(
    State(site): State<Site>,
    User(me): User,
    Path(user): Path<i64>,
) -> Result<StatusCode, Error> {
    site.follows.follow(me, user).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn unfollow(
    State(site): State<Site>,
    User(me): User,
    Path(user): Path<i64>,
) -> Result<StatusCode, Error> {
    site.follows.unfollow(me, user).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn in_common(
    State(site): State<Site>,
    User(me): User,
    Path(user): Path<i64>,
) -> Result<Json<Vec<String>>, Error> {
    let common = site.follows.in_common(me, user).await?;
    Ok(Json(common.iter().map(i64::to_string).collect()))
}

async fn feed(
    State(site): State<Site>,
    User(me): User,
    Path(seen): Path<String>,
) -> Result<Json<Value>, Error> {
    let page = site.feed.page(me, seen.parse()?, PAGE).await?;
    let mut reviews = vec![];
    for Seen { review, .. } in &page {
        reviews.push(shown(&site, *review).await?);
    }
    let next = page
        .last()
        .map(|last| format!("{}-{}", last.time, last.review));
    Ok(Json(json!({"reviews": reviews, "next": next})))
}

async fn check_in(State(site): State<Site>, User(me): User) -> Result<String, Error> {
    let days = site.check_ins.check_in(me, Day::today()).await?;
    Ok(days.to_string())
}

async fn locks(State(site): State<Site>) -> Result<Json<Value>, Error> {
    Ok(Json(site.lock_view.all().await?.into()))
}
